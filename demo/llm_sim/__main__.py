"""``python -m llm_sim``: one simulated server in the foreground."""

from __future__ import annotations

import asyncio
import sys

from llm_sim.engine_client import EngineDeadError
from llm_sim.server import Server
from llm_sim.settings import Settings, parse


def main() -> int:
    """Serve; the exit status is 1 if the engine ended while the model was loaded."""
    settings = parse()
    try:
        asyncio.run(_serve(settings))
    except EngineDeadError:
        sys.stderr.write("Engine core initialization failed: the engine process ended while loading.\n")
        return 1
    except OSError as wrong:
        sys.stderr.write(f"cannot listen on {settings.host}:{settings.port}: {wrong}; choose another --port\n")
        return 1
    return 0


async def _serve(settings: Settings) -> None:
    await Server(settings).run()


if __name__ == "__main__":
    sys.exit(main())
