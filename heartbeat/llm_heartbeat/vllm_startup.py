"""vLLM plugin (`vllm.general_plugins`): `/healthz/startup` on the side port while the weights load.

Off unless `LLM_HEARTBEAT_VLLM_STARTUP=1` and `LLM_HEARTBEAT_LISTEN` are set. vLLM calls plugins unguarded, in the server's
process and again in every engine process and worker; only the first of them, which has no parent of vLLM's, serves.
"""

import multiprocessing
import sys


def serve() -> None:
    """The plugin's function. Idempotent; never raises."""
    try:
        from llm_heartbeat.heartbeat import get

        if multiprocessing.parent_process() is not None:
            return
        heartbeat = get()
        if heartbeat.settings.vllm_startup and heartbeat.settings.listen:
            heartbeat.startup.loading(
                "vLLM loads the model", heartbeat.clock()
            )  # until the middleware says that vLLM serves
            heartbeat.serve()
    except Exception as error:  # noqa: BLE001 - an exception here would end vLLM's start; the reason is printed
        print(f"llm_heartbeat: stands aside: {type(error).__name__}: {error}", file=sys.stderr)
