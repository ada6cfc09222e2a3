"""The engine process: takes requests from a socket, runs steps in real time, sends what each step yields.

Started by the API process only. A stopped (SIGSTOP) engine looks as a hung forward pass does from outside.
"""

from __future__ import annotations

import argparse
import queue
import signal
import socket
import threading
import time

from llm_sim import processes, wire
from llm_sim.scheduler import Request, Scheduler, Step

_Inbox = queue.SimpleQueue[wire.Add | wire.Abort | None]
_Outbox = queue.SimpleQueue[bytes]


def step_seconds(step: Step, prefill_rate: float, decode_rate: float) -> float:
    """How long the forward pass takes; decodes wait for the prefill chunk that shares their step."""
    return step.prefill_tokens / prefill_rate + (1 / decode_rate if step.decodes else 0.0)


def run(scheduler: Scheduler, inbox: _Inbox, outbox: _Outbox, rates: tuple[float, float], stale_gauges: bool) -> None:
    """Step until the API process hangs up. Commands are read between steps only, as in vLLM's busy loop."""
    while True:
        while not (scheduler.has_work and inbox.empty()):
            command = inbox.get()
            if command is None:
                return
            _apply(scheduler, command)
        step = scheduler.schedule(time.monotonic())
        time.sleep(step_seconds(step, *rates))
        outputs = tuple(scheduler.complete(step))
        stats = None if stale_gauges and not outputs else scheduler.take_stats()
        outbox.put(wire.encode_result(wire.StepResult(stats, outputs)))


def _apply(scheduler: Scheduler, command: wire.Add | wire.Abort) -> None:
    if isinstance(command, wire.Abort):
        scheduler.abort(command.request_ids)
    else:
        scheduler.add(Request(command.request_id, command.prompt_tokens, command.max_tokens, queued_at=command.queued_at))


def _read(connection: socket.socket, inbox: _Inbox) -> None:
    with connection.makefile("rb") as lines:
        for line in lines:
            inbox.put(wire.decode_command(line))
    inbox.put(None)


def _write(connection: socket.socket, outbox: _Outbox) -> None:
    while True:
        try:
            connection.sendall(outbox.get())
        except OSError:  # the API process is gone; the reader sees the end of the stream and ends us
            return


def main() -> None:
    """Load (sleep), say ready, serve."""
    parser = argparse.ArgumentParser()
    for name in ("--fd", "--parent", "--rank", "--slots", "--chunk", "--kv-blocks", "--block-size"):
        parser.add_argument(name, type=int, required=True)
    for name in ("--load-seconds", "--prefill-rate", "--decode-rate"):
        parser.add_argument(name, type=float, required=True)
    parser.add_argument("--stale-gauges", action="store_true")
    arguments = parser.parse_args()

    processes.die_with_parent(arguments.parent)
    processes.set_name(f"SIM::Engine_{arguments.rank}")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the API process, which ends its engines
    connection = socket.socket(fileno=arguments.fd)
    time.sleep(arguments.load_seconds)
    inbox: _Inbox = queue.SimpleQueue()
    outbox: _Outbox = queue.SimpleQueue()
    outbox.put(wire.encode_ready())
    threading.Thread(target=_read, args=(connection, inbox), daemon=True).start()
    threading.Thread(target=_write, args=(connection, outbox), daemon=True).start()
    scheduler = Scheduler(arguments.slots, arguments.chunk, arguments.kv_blocks, arguments.block_size)
    run(scheduler, inbox, outbox, (arguments.prefill_rate, arguments.decode_rate), arguments.stale_gauges)


if __name__ == "__main__":
    main()
