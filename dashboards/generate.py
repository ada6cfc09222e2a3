"""Write the dashboards' JSON beside this file; `--check` only says whether it is current.

Run: python dashboards/generate.py
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from grafana_dashboards.fleet import fleet
from grafana_dashboards.remediation import remediation
from grafana_dashboards.target import target

HERE = Path(__file__).parent
FILES = {"fleet.json": fleet, "target.json": target, "remediation.json": remediation}


def main(argv: list[str]) -> int:
    """Exit 0; with `--check` 1 if a file differs from what would be written."""
    stale = []
    for name, make in FILES.items():
        text = json.dumps(make(), indent=2, ensure_ascii=False) + "\n"
        path = HERE / name
        if "--check" not in argv:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(name)
    if stale:
        print(f"not current: {', '.join(stale)}; run: python dashboards/generate.py", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
