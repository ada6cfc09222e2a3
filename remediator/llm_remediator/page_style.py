"""The page's one style sheet: readable on a phone, light and dark, contrast above 4.5 to 1 in both."""

from __future__ import annotations

from llm_remediator.markup import Markup

STYLE = Markup("""
:root { color-scheme: light dark; --bg: #fff; --fg: #1a1d21; --dim: #555b64; --line: #d5d9df; --card: #f6f7f9;
  --good: #14662e; --bad: #a8141c; --odd: #7a4d00; --link: #0b57b0; }
@media (prefers-color-scheme: dark) { :root { --bg: #14171a; --fg: #e6e8ea; --dim: #a6adb6; --line: #353b42;
  --card: #1d2125; --good: #6fd08c; --bad: #ff8a8a; --odd: #f0b95c; --link: #8ab8ff; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 68rem; padding: .75rem; background: var(--bg); color: var(--fg);
  font: 16px/1.45 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.15rem; } h2 { font-size: 1.1rem; margin: 1.5rem 0 .5rem; } h3 { font-size: 1rem; margin: 0; }
a { color: var(--link); } h1 a { color: inherit; text-decoration: none; }
article, .decisions > details { background: var(--card); border: 1px solid var(--line); border-radius: .5rem;
  padding: .75rem; margin: 0 0 .75rem; }
.decisions > details { padding: .4rem .75rem; margin-bottom: .4rem; }
.state { border: 1px solid currentColor; border-radius: 1rem; padding: 0 .5rem; font-size: .875rem;
  white-space: nowrap; }
.good { color: var(--good); } .bad { color: var(--bad); } .odd { color: var(--odd); }
.note { border-left: .25rem solid currentColor; padding-left: .6rem; margin: .4rem 0; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem .75rem; margin: .5rem 0; }
dt { color: var(--dim); } dd { margin: 0; }
.lights { list-style: none; display: flex; flex-wrap: wrap; gap: .2rem 1.1rem; padding: 0; margin: .5rem 0; }
.gates { padding-left: 1.6rem; } .gates li { margin: .2rem 0; }
pre { overflow-x: auto; max-height: 30rem; font-size: .8125rem; }
summary { cursor: pointer; }
time { color: var(--dim); }
.button, button { display: inline-block; min-height: 2.6rem; padding: .5rem .9rem; margin: .2rem .4rem .2rem 0;
  border: 1px solid var(--link); border-radius: .4rem; background: none; color: var(--link); font: inherit;
  text-decoration: none; cursor: pointer; }
button { background: var(--link); color: var(--bg); }
form label { display: block; margin: .5rem 0; }
input { font: inherit; padding: .4rem; max-width: 100%; }
:focus-visible { outline: 3px solid var(--link); outline-offset: 2px; }
""")
