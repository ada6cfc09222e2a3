"""Real engines for tests and recordings: started, loaded with work, stopped, frozen and killed for real.

Standard library only, so that the recorder runs wherever an engine does. Every engine runs in a session of its own and
is ended by that session's id, so that nothing else on the machine is ever touched.
"""

from __future__ import annotations

import contextlib
import ctypes
import http.client
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts" / "engines"
# A tiny model on a machine that other work shares: the engine's imports alone may take minutes from a cold disk.
START_SECONDS = 420.0


class EngineStartError(RuntimeError):
    """The engine ended, or did not answer in time; the message carries the end of its log."""


def wait_for(what: str, probe: object, within: float, every: float = 0.2) -> None:
    """Poll ``probe()`` until it is true; ``TimeoutError`` names ``what`` after ``within`` seconds."""
    if not callable(probe):
        raise TypeError("probe must be callable")
    end = time.monotonic() + within
    while not probe():
        if time.monotonic() > end:
            raise TimeoutError(f"not within {within:g}s: {what}")
        time.sleep(every)


def get(port: int, path: str, timeout: float = 5.0, headers: Mapping[str, str] | None = None) -> tuple[int, bytes]:
    """``GET path`` of the loopback: status and body. Errors of the socket are the caller's."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request("GET", path, headers=dict(headers or {}))
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def post(port: int, path: str, body: str = "", timeout: float = 30.0) -> tuple[int, bytes]:
    """``POST path`` to the loopback: status and body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def answers(port: int, path: str = "/health", timeout: float = 2.0) -> bool:
    """Whether ``path`` says 200 now."""
    with contextlib.suppress(OSError, http.client.HTTPException):
        return get(port, path, timeout)[0] == 200
    return False


@dataclass
class Engine:
    """A running engine: the process we started and everything in its session."""

    kind: str
    port: int
    command: Sequence[str]
    environment: Mapping[str, str]
    log: Path
    model: str
    api_key: str | None = None
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def url(self) -> str:
        """Where it is served."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """Process id of the process that holds the port."""
        assert self.process is not None
        return self.process.pid

    def launch(self) -> None:
        """Start it and return at once."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                list(self.command),
                env={**os.environ, **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def wait_ready(self, within: float = START_SECONDS, path: str = "/health") -> None:
        """Wait until it serves; :class:`EngineStartError` with the end of its log otherwise."""
        process = self.process
        assert process is not None
        try:
            wait_for(
                f"{self.kind} serves on {self.port}",
                lambda: process.poll() is not None or answers(self.port, path),
                within,
                every=0.5,
            )
        except TimeoutError as error:
            raise EngineStartError(f"{error}\n{self.tail()}") from error
        if process.poll() is not None:
            raise EngineStartError(f"{self.kind} ended with {process.returncode}\n{self.tail()}")

    def start(self) -> Engine:
        """Start it and wait until it serves."""
        self.launch()
        self.wait_ready()
        return self

    def tail(self, size: int = 3000) -> str:
        """The end of its log."""
        return self.log.read_bytes()[-size:].decode(errors="replace")

    def session(self) -> dict[int, str]:
        """Processes of its session: pid to title."""
        found: dict[int, str] = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            with contextlib.suppress(OSError):
                stat = (entry / "stat").read_text()
                state, _, _, session = stat.rpartition(")")[2].split()[:4]
                if int(session) == self.pid and state != "Z":
                    title = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                    found[int(entry.name)] = title
        return found

    def processes(self, title: str) -> list[int]:
        """Pids of its session whose title begins with ``title``, in order of title (``VLLM::EngineCore_DP0`` first)."""
        return [pid for pid, name in sorted(self.session().items(), key=lambda item: item[1]) if name.startswith(title)]

    def stop(self) -> None:
        """End the whole session, whatever state it is in, and wait until the port is free."""
        if self.process is None:
            return
        for pid in self.session():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(30)
        wait_for("the session has ended", lambda: not self.session(), 30)


def vllm(
    port: int, log: Path, *arguments: str, model: str = "small", env: Mapping[str, str] | None = None, key: str | None = None
) -> Engine:
    """A vLLM on CPU as ``scripts/engines/vllm-serve`` starts it; ``model`` is ``small`` or ``slow``."""
    extra = ["--api-key", key] if key else []
    command = [str(SCRIPTS / "vllm-serve"), str(port), model, *arguments, *extra]
    return Engine("vllm", port, command, dict(env or {}), log, model, key)


def llamacpp(
    port: int, log: Path, *arguments: str, model: str = "small", env: Mapping[str, str] | None = None, key: str | None = None
) -> Engine:
    """A llama-server as ``scripts/engines/llama-serve`` starts it."""
    extra = ["--api-key", key] if key else []
    command = [str(SCRIPTS / "llama-serve"), str(port), model, *arguments, *extra]
    return Engine("llamacpp", port, command, dict(env or {}), log, model, key)


@dataclass
class Request:
    """One completion in its own thread: token ids in, no text processing that could hide a delay."""

    engine: Engine
    prompt: int
    tokens: int
    headers: Mapping[str, str]
    began: float = 0.0
    seconds: float | None = None
    status: int | None = None
    error: str | None = None
    _connection: http.client.HTTPConnection | None = field(default=None, repr=False)
    _thread: threading.Thread | None = field(default=None, repr=False)

    def start(self) -> Request:
        """Send it; returns once the request is on its way."""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def _run(self) -> None:
        self.began = time.monotonic()
        body: dict[str, object] = {
            "model": self.engine.model,
            # Distinct prompts, or the prefix cache would do the work.
            "prompt": [3 + (i * 7 + id(self)) % 250 for i in range(self.prompt)],
            "max_tokens": self.tokens,
            "ignore_eos": True,
            "temperature": 0,
        }
        headers = {"Content-Type": "application/json", **self.headers}
        if self.engine.api_key and "Authorization" not in headers:
            headers["Authorization"] = f"Bearer {self.engine.api_key}"
        connection = http.client.HTTPConnection("127.0.0.1", self.engine.port, timeout=900)
        self._connection = connection
        try:
            connection.request("POST", "/v1/completions", json.dumps(body), headers)
            response = connection.getresponse()
            response.read()
            self.status = response.status
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.error = type(error).__name__
        finally:
            self.seconds = time.monotonic() - self.began
            connection.close()

    def abort(self) -> None:
        """Disconnect, as a client does that gives up."""
        connection = self._connection
        if connection is not None and connection.sock is not None:
            with contextlib.suppress(OSError):
                connection.sock.shutdown(2)

    def join(self, within: float) -> Request:
        """Wait for the end of it."""
        assert self._thread is not None
        self._thread.join(within)
        if self._thread.is_alive():
            raise TimeoutError(f"a request of {self.tokens} tokens did not end within {within:g}s")
        return self

    @property
    def ended(self) -> bool:
        """Whether it has come to an end, good or bad."""
        return self.seconds is not None


def send(
    engine: Engine, count: int = 1, *, prompt: int = 16, tokens: int = 200, headers: Mapping[str, str] | None = None
) -> list[Request]:
    """Send ``count`` completions at once."""
    return [Request(engine, prompt, tokens, headers or {}).start() for _ in range(count)]


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    """SIGSTOP a process, SIGCONT it at the end: it keeps its sockets and does nothing."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


_SEIZE, _INTERRUPT, _DETACH = 0x4206, 0x4207, 17


@contextlib.contextmanager
def frozen_thread(tid: int) -> Iterator[None]:
    """Stop one thread of another process (ptrace): its other threads, such as a web server's, go on.

    This is what a decode that never returns looks like from outside; a signal would stop every thread.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    libc.ptrace.restype = ctypes.c_long

    def ptrace(request: int) -> None:
        if libc.ptrace(request, tid, None, None) == -1:
            number = ctypes.get_errno()
            raise OSError(number, f"ptrace {request:#x} of thread {tid}: {os.strerror(number)}")

    ptrace(_SEIZE)
    ptrace(_INTERRUPT)
    os.waitpid(tid, 0x40000000)  # __WALL: the thread is no child of ours
    try:
        yield
    finally:
        ptrace(_DETACH)


@contextlib.contextmanager
def frozen_in_decode(engine: Engine, tries: int = 40) -> Iterator[None]:
    """Freeze llama-server's decoding thread inside ``llama_decode()``, where a hung kernel would hold it.

    Its page is answered by another thread then. Frozen elsewhere in its loop the page hangs too, which is another case.
    """
    headers = {"Authorization": f"Bearer {engine.api_key}"} if engine.api_key else {}
    for _ in range(tries):
        with contextlib.ExitStack() as stack:
            stack.enter_context(frozen_thread(engine.pid))
            try:
                get(engine.port, "/metrics", 0.5, headers)
                # Again: the first page may have been under way when the thread was frozen.
                get(engine.port, "/metrics", 0.5, headers)
            except OSError:
                caught = False
            else:
                caught = True
            if caught:
                yield
                return
        time.sleep(0.05)
    raise TimeoutError(f"the decoding thread was never caught inside a decode in {tries} tries")
