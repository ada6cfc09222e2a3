"""``python -m llm_sim.fault hang|continue|kill``: do to an engine what a driver or the kernel does.

Meant for ``docker exec`` beside the server: it reads the pids that the server wrote.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from llm_sim.processes import default_pids_file
from llm_sim.settings import Settings

_SIGNALS = {"hang": signal.SIGSTOP, "continue": signal.SIGCONT, "kill": signal.SIGKILL}


def main(arguments: Sequence[str] | None = None) -> int:
    """Signal one engine; exit status 1 with a sentence if there is none."""
    parser = argparse.ArgumentParser(prog="python -m llm_sim.fault", description=__doc__)
    parser.add_argument("action", choices=_SIGNALS)
    parser.add_argument("--port", type=int, default=Settings.port, help="of the server, to find its pids")
    parser.add_argument("--pids-file", type=Path, default=None)
    parser.add_argument("--rank", type=int, default=0, help="data-parallel rank")
    chosen = parser.parse_args(arguments)
    path: Path = chosen.pids_file or default_pids_file(chosen.port)
    try:
        pid = json.loads(path.read_text())["engines"][chosen.rank]
        os.kill(pid, _SIGNALS[chosen.action])
    except FileNotFoundError:
        sys.stderr.write(f"{path} is missing: no simulated server on port {chosen.port}; give --port\n")
        return 1
    except IndexError:
        sys.stderr.write(f"{path} names no engine of rank {chosen.rank}\n")
        return 1
    except ProcessLookupError:
        sys.stderr.write(f"the engine process of {path} has ended\n")
        return 1
    sys.stdout.write(f"{chosen.action}: engine process {pid} of rank {chosen.rank}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
