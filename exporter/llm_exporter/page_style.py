"""How the pages look: light and dark, one column on a phone, colours never the only sign."""

STYLE = """
:root{--fg:#1b1f24;--bg:#fff;--soft:#eef1f4;--line:#c9d1d9;--link:#0a58ca;
--bad:#b3261e;--warn:#8a5300;--good:#1a6b34;--calm:#4a5560}
@media(prefers-color-scheme:dark){:root{--fg:#e6edf3;--bg:#0f1419;--soft:#1b222b;--line:#36404b;--link:#79b8ff;
--bad:#ff8a80;--warn:#ffc56d;--good:#7ee29a;--calm:#a8b3bf}}
*{box-sizing:border-box}
body{margin:0;color:var(--fg);background:var(--bg);font:1rem/1.5 system-ui,sans-serif}
main{max-width:70rem;margin:auto;padding:1rem}
footer{max-width:70rem;margin:auto;padding:0 1rem 2rem;color:var(--calm);font-size:.875rem}
h1{font-size:1.5rem;margin:.5rem 0;overflow-wrap:anywhere}h2{font-size:1.15rem;margin:1.5rem 0 .5rem}
a{color:var(--link)}nav a{display:inline-block;margin:1rem 1rem 0 0}
a:focus-visible,[tabindex]:focus-visible{outline:3px solid var(--link);outline-offset:2px}
.wide{overflow-x:auto}
table{border-collapse:collapse;width:100%}
th,td{text-align:left;vertical-align:top;padding:.4rem .6rem;border-bottom:1px solid var(--line);overflow-wrap:anywhere}
thead th{background:var(--soft);white-space:nowrap}
small{color:var(--calm);font-weight:normal}
.counts{list-style:none;display:flex;flex-wrap:wrap;gap:.5rem 1rem;padding:0}
.verdict{font-size:1.15rem}
.state{border:1px solid currentColor;border-radius:.3rem;padding:0 .4rem;white-space:nowrap}
.stuck,.failed,.down{color:var(--bad);border-width:2px}
.stalled,.starved,.unreachable,.unknown{color:var(--warn)}
.busy,.idle{color:var(--good)}.starting,.sleeping{color:var(--calm)}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.2rem 1rem}
dt{color:var(--calm)}dd{margin:0;overflow-wrap:anywhere}
meter{width:100%;max-width:24rem}
@media(max-width:40rem){dl{grid-template-columns:1fr}dd{margin-bottom:.4rem}
table,tbody,tr,th,td{display:block;width:auto}thead{display:none}tr{border-bottom:2px solid var(--line);padding:.4rem 0}
th,td{border:0;padding:.1rem .2rem}
td[data-head]::before{content:attr(data-head) ": ";color:var(--calm)}}
"""
