"""The API process's side of one engine: starts it, sends requests, hands out tokens, notices its death."""

from __future__ import annotations

import asyncio
import itertools
import socket
import sys
import time
from collections.abc import AsyncGenerator

from llm_sim import wire
from llm_sim.engine_metrics import EngineMetrics, Track
from llm_sim.settings import Settings

_LINE_LIMIT = 1 << 24
_STOP_SECONDS = 5.0


class EngineDeadError(Exception):
    """The engine process ended; vLLM answers 500 with this text."""

    def __init__(self) -> None:
        super().__init__("EngineCore encountered an issue. See stack trace (above) for the root cause.")


class EngineClient:
    """One engine process and the requests that it holds."""

    def __init__(self, settings: Settings, rank: int, metrics: EngineMetrics) -> None:
        self._settings = settings
        self._rank = rank
        self._metrics = metrics
        self._tracks: dict[str, Track] = {}
        self._streams: dict[str, asyncio.Queue[str | None]] = {}
        self._ids = itertools.count()
        self._process: asyncio.subprocess.Process | None = None
        self._writer: asyncio.StreamWriter | None = None
        self.died = asyncio.Event()

    @property
    def pid(self) -> int:
        """Of the engine process, the one to stop or kill."""
        if self._process is None:
            raise RuntimeError("the engine has not been started")
        return self._process.pid

    @property
    def load(self) -> int:
        """Requests held; the balancer sends the next one where it is smallest."""
        return len(self._tracks)

    async def start(self, api_pid: int) -> asyncio.StreamReader:
        """Start the process and return the stream to give to :meth:`wait_ready` and :meth:`receive`."""
        ours, theirs = socket.socketpair()
        settings = self._settings
        options = {
            "--fd": theirs.fileno(),
            "--parent": api_pid,
            "--rank": self._rank,
            "--slots": settings.slots,
            "--chunk": settings.chunk,
            "--kv-blocks": settings.kv_blocks,
            "--block-size": settings.block_size,
            "--load-seconds": settings.load_seconds,
            "--prefill-rate": settings.prefill_rate,
            "--decode-rate": settings.decode_rate,
        }
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "llm_sim.engine_process"),
            *(str(part) for option in options.items() for part in option),
            *(["--stale-gauges"] if settings.stale_gauges else []),
            pass_fds=(theirs.fileno(),),
        )
        theirs.close()
        reader, self._writer = await asyncio.open_connection(sock=ours, limit=_LINE_LIMIT)
        return reader

    async def wait_ready(self, reader: asyncio.StreamReader) -> None:
        """Return when the model is loaded; raise :class:`EngineDeadError` if the process ended before."""
        if not await reader.readline():
            raise EngineDeadError

    async def receive(self, reader: asyncio.StreamReader) -> None:
        """Take results until the engine ends, then fail every request it held."""
        try:
            while line := await reader.readline():
                result = wire.decode_event(line)
                if result is not None:
                    self._take(result)
        except ConnectionError:
            pass  # the same news as the end of the stream
        finally:
            self.died.set()
            for stream in self._streams.values():
                stream.put_nowait(None)

    async def generate(self, prompt_tokens: int, max_tokens: int, finish_reason: str) -> AsyncGenerator[str, None]:
        """Yield ``""`` per token and at last the finish reason; leaving early aborts the request."""
        if self.died.is_set():
            raise EngineDeadError
        request_id = f"{self._rank}-{next(self._ids)}"
        now = time.monotonic()
        self._tracks[request_id] = Track(prompt_tokens, max_tokens, now, finish_reason)
        stream = self._streams[request_id] = asyncio.Queue()
        self._send(wire.Add(request_id, prompt_tokens, max_tokens, now))
        try:
            while (piece := await stream.get()) is not None:
                yield piece
                if piece:
                    return
            raise EngineDeadError
        finally:
            del self._streams[request_id]
            if self._tracks.pop(request_id, None) is not None and not self.died.is_set():
                self._send(wire.Abort((request_id,)))

    async def stop(self) -> None:
        """SIGTERM, and SIGKILL if that is not heeded (a stopped process heeds nothing)."""
        process = self._process
        if process is None:
            return
        if process.returncode is None:
            process.terminate()
            try:
                await asyncio.wait_for(process.wait(), _STOP_SECONDS)
            except TimeoutError:
                process.kill()
                await process.wait()
        if self._writer is not None:
            self._writer.close()

    def _take(self, result: wire.StepResult) -> None:
        self._metrics.record(result, self._tracks, time.monotonic())
        for output in result.outputs:
            if output.finish_reason is not None:
                track = self._tracks.pop(output.request_id, None)
                piece = track.finish_reason if track else output.finish_reason
            else:
                piece = ""
            stream = self._streams.get(output.request_id)
            if stream is not None:
                stream.put_nowait(piece)

    def _send(self, command: wire.Add | wire.Abort) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(wire.encode_command(command))
