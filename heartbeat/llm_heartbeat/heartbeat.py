"""The running heartbeat: the beats in the loop, the watchdog's thread beside it, the side port."""

import asyncio
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from llm_heartbeat import merge, peers, sources
from llm_heartbeat import settings as options
from llm_heartbeat.culprit import Culprit, capture
from llm_heartbeat.dependencies import Check, Dependency, parse
from llm_heartbeat.drain import SigtermHook
from llm_heartbeat.health import ENDPOINTS
from llm_heartbeat.report import JSON_TYPE, TEXT_TYPE, Report, response
from llm_heartbeat.side_port import Answer, SidePort
from llm_heartbeat.state import State
from llm_heartbeat.systemd import Notifier
from llm_heartbeat.warmup import Warm, Warmup

log = logging.getLogger("llm_heartbeat")

_LISTEN_AGAIN = 5.0  # seconds


class Heartbeat(State):
    """One per process, see `get()`; what the application may say to it stands in `State`.

    `start()` is called in the loop's thread and may be called again; `stop()` undoes it.
    """

    def __init__(
        self,
        settings: options.Settings | None = None,
        *,
        exit_process: Callable[[int], object] = os._exit,
    ) -> None:
        problems: tuple[str, ...] = ()
        if settings is None:
            settings, problems = options.read()
        super().__init__(settings)
        self._exit = exit_process
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_thread = 0
        self._timer: asyncio.TimerHandle | None = None
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self._side_port: SidePort | None = None
        self._hook: SigtermHook | None = None
        self._notifier = Notifier()
        self._warmup: Warmup | None = None
        self._snapshot_due = self._listen_due = 0.0
        checks, wrong = parse(settings.dependencies)
        for name, check in checks.items():
            self.essential(name, check)
        for problem in (*problems, *wrong):
            self.faults.note("settings", problem)
            log.error("%s", problem)

    # What the application may register --------------------------------------------------------------------------

    def essential(
        self,
        name: str,
        check: Check,
        *,
        timeout: float | None = None,
        every: float | None = None,
        may_leave: float | None = None,
    ) -> None:
        """Register a dependency without which no request can succeed. Call it before `start()`.

        `check` is an async function: it raises, returns False or takes longer than `timeout` seconds if it is not there.
        `may_leave`: share of the replicas that may become unready for it (0: none, then it only shows `degraded`).
        """
        self.dependencies[name] = Dependency(
            name,
            check,
            timeout=self.settings.dependency_timeout if timeout is None else timeout,
            every=self.settings.dependency_every if every is None else every,
            share=self.settings.dependency_may_leave if may_leave is None else may_leave,
            replica=self.settings.replica_name,
            faults=self.faults,
        )

    def source(self, name: str, read: sources.Read) -> None:
        """Read `queue`, `kv` or `gpu` by a function of the application, in a thread. Call it before `start()`."""
        self.sources[name] = sources.Source(name, read, self.settings.poll, self.faults)

    def on_warmup(self, warm: Warm) -> None:
        """An async function that warms the model up: run once after loading, and again after `needs_warmup()`."""
        self._warmup = Warmup(self, warm)
        self.needs_warmup()

    def out_of_memory(self) -> None:
        """An out-of-memory error was survived; asks for a new warm-up if `LLM_HEARTBEAT_REWARM_AFTER_OOM` is on."""
        if self.settings.rewarm_after_oom:
            self.needs_warmup("warming up again after an out-of-memory error")

    # Life -------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Attach to the running loop, in its thread. An error of ours is counted, and the server goes on without us."""
        loop = asyncio.get_running_loop()
        if self._loop is loop and self.beats is not None:
            return
        with self.faults.passed_by("metrics"):
            self._start_metrics()
        with self.faults.passed_by("start"):
            self._loop, self._loop_thread = loop, threading.get_ident()
            self.attach()
            if self._timer is not None:
                self._timer.cancel()
            self._timer = loop.call_later(self.settings.interval, self._beat)
            self._start_sources()
            for dependency in self.dependencies.values():
                dependency.start(loop)
            if self.settings.handle_sigterm:
                self._hook = SigtermHook(lambda: self.drain("SIGTERM"), self.settings.drain_delay)
                self._hook.install(loop)
        self.serve()

    def serve(self) -> None:
        """Watchdog and side port only; the loop may come later. Idempotent."""
        with self.faults.passed_by("watchdog"):
            if self._thread is None:
                self._stopping = threading.Event()
                self._thread = threading.Thread(
                    target=self._watch, args=(self._stopping,), name="llm-heartbeat-watchdog", daemon=True
                )
                self._thread.start()
        self._listen_if_due(self._stopping)

    def stop(self) -> None:
        """Detach from the loop and free the side port; in the loop's thread."""
        with self.faults.passed_by("stop"):
            if self._timer is not None:
                self._timer.cancel()
            for dependency in self.dependencies.values():
                dependency.stop()
            if self._warmup is not None:
                self._warmup.stop()
            for source in self.sources.values():
                source.stop()
            if self._hook is not None:
                self._hook.remove()
            self._stopping.set()
            self.detach()
            if self._side_port is not None:
                self._side_port.stop()
            where = peers.directory(self.settings.state_dir)
            if where is not None:
                (where / f"llm_heartbeat_{os.getpid()}.json").unlink(missing_ok=True)
        self._timer = self._thread = self._hook = self._loop = self._side_port = None
        self._listen_due = 0.0

    @property
    def listening(self) -> tuple[str, int] | None:
        """Address and port of the side port; None where there is none."""
        return self._side_port.address if self._side_port else None

    def after_fork(self) -> None:
        """In a forked child: threads are gone, and the port must not stay taken by us; `start()` begins anew."""
        super().after_fork()
        if self._side_port is not None:
            self._side_port.close_inherited()
        for source in self.sources.values():
            source.after_fork()
        self._timer = self._thread = self._hook = self._loop = self._side_port = None

    def _start_metrics(self) -> None:
        # Late on purpose: prometheus_client decides at its import whether it works for several processes, and vLLM sets
        # the variable for that after our plugin has run.
        from llm_heartbeat.metrics import Metrics

        if self.metrics is None:
            self.metrics = Metrics(self.faults)

    def _start_sources(self) -> None:
        in_vllm = "vllm.entrypoints" in sys.modules
        own = {"queue": sources.vllm_queue, "kv": sources.vllm_kv, "gpu": sources.gpu_memory}
        for name, read in own.items():
            wanted = name in self.limits or (in_vllm and name != "gpu")
            if name not in self.sources and wanted:
                self.source(name, read)
        for source in self.sources.values():
            source.start()

    def _beat(self) -> None:
        loop = self._loop
        if loop is None:
            return
        with self.faults.passed_by("beat"):
            self.beat()
            if self._warmup is not None:
                self._warmup.run_if_due(loop)
        self._timer = loop.call_later(self.settings.interval, self._beat)

    # The watchdog's thread --------------------------------------------------------------------------------------

    def _watch(self, stopping: threading.Event) -> None:
        pause = max(0.02, min(0.25, self.settings.blocked_after / 2, self.settings.live_after / 4))
        while not stopping.wait(pause):
            with self.faults.passed_by("watchdog"):
                loop = self._loop
                if loop is not None and not loop.is_running():
                    self.detach()  # asyncio.run() is over: what does not run cannot be late
                self.tick(self._find_culprit)
                if self.drain_since is not None and loop is not None:
                    self.requests.end_overdue(self.clock() - self.drain_since, loop)
            with self.faults.passed_by("metrics"):
                self._export()
            self._listen_if_due(stopping)
            with self.faults.passed_by("systemd"):
                self._tell_systemd()
            with self.faults.passed_by("peers"):
                self._write_snapshot(self.clock())
            if self.load_has_failed and self.settings.exit_on_failed_load:
                self._exit_failed()
                return

    def _export(self) -> None:
        if self.metrics is not None:
            from llm_heartbeat.export import export

            export(self, self.metrics)

    def _tell_systemd(self) -> None:
        live, startup = self.report("live"), self.report("startup")
        status = ", ".join((startup.status, *live.failed, *([self.drain_reason] if self.drain_reason else [])))
        self._notifier.tick(self.clock(), live.good, startup.good, bool(self.drain_reason), status)

    def _find_culprit(self, blocked_seconds: float) -> Culprit | None:
        with self.faults.passed_by("culprit"):
            self._snapshot_due = 0.0  # the other processes should know at once
            return capture(self._loop_thread, time.time(), blocked_seconds)
        return None

    def _write_snapshot(self, now: float) -> None:
        if now < self._snapshot_due or self._loop is None:
            return
        self._snapshot_due = now + peers.EVERY
        where = peers.directory(self.settings.state_dir)
        if where is not None:
            self.snapshot().write(where)

    def _exit_failed(self) -> None:
        log.critical("the load failed, and LLM_HEARTBEAT_EXIT_ON_FAILED_LOAD is on: exit 1: %s", self.startup.reason)
        for handler in logging.getLogger().handlers:
            with suppress(Exception):  # a log handler that cannot flush must not keep a lost process alive
                handler.flush()
        self._exit(1)

    # The side port's threads ------------------------------------------------------------------------------------

    def _listen_if_due(self, stopping: threading.Event) -> None:
        """Now, and again while another process has the port: it may end before us."""
        if not self.settings.listen or self._side_port is not None or self.clock() < self._listen_due:
            return
        self._listen_due = self.clock() + _LISTEN_AGAIN
        with self.faults.passed_by("side_port"):
            self._listen()
            if stopping.is_set() and self._side_port is not None:
                self._side_port.stop()

    def _listen(self) -> None:
        host, ports = options.parse_listen(self.settings.listen)
        try:
            self._side_port = SidePort(host, ports, self.answer)
        except OSError as error:
            where = peers.directory(self.settings.state_dir)
            hint = "another process of this server answers there for all" if where else "is it in use?"
            self.faults.note("side_port", f"cannot listen on {self.settings.listen}: {error}; {hint}")
            return
        self._side_port.start()
        log.info("heartbeat on http://%s:%d%s/live", *self._side_port.address, self.settings.prefix)

    def answer(self, path: str, query: str) -> Answer | None:
        """The side port's answer for a path, for all processes of this server; None: no such path."""
        if path == "/metrics":
            from llm_heartbeat.metrics import page

            return (200, *page())
        endpoint = path.removeprefix(self.settings.prefix).strip("/")
        if path.startswith(self.settings.prefix) and endpoint in ENDPOINTS:
            return self.respond(lambda: self.merged(endpoint), query)
        if path == "/":
            paths = ", ".join(f"{self.settings.prefix}/{name}" for name in ENDPOINTS)
            return 200, TEXT_TYPE, f"llm_heartbeat: {paths}, /metrics\n".encode()
        return None

    def respond(self, report: Callable[[], Report], query: str, details: bool = True) -> Answer:
        """A report as a response. If we fail at it, 200 `unknown`: our own error restarts nobody and takes nobody out."""
        with self.faults.passed_by("answer"):
            return response(report(), query, details)
        return 200, JSON_TYPE, b'{"status": "unknown", "failed": [], "reason": "the heartbeat itself failed; see the log"}\n'

    def merged(self, endpoint: str) -> Report:
        """Own answer and that of the server's other processes."""
        own = self.report(endpoint)
        where = peers.directory(self.settings.state_dir)
        if where is None:
            return own
        now, since = self.clock(), self.watch.watching_since
        look = merge.Look(
            now=now,
            wall=self.wall(),
            watching_since=now if since is None else since,
            live_after=self.settings.live_after,
            serves=self._loop is not None,
        )
        return merge.merge(own, peers.others(where), look)


_lock = threading.Lock()
_current: Heartbeat | None = None


def get() -> Heartbeat:
    """The heartbeat of this process, configured by environment. Plugins, middleware and application share it."""
    global _current
    with _lock:
        if _current is None:
            _current = Heartbeat()
        return _current


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()
    if _current is not None:
        _current.after_fork()


os.register_at_fork(after_in_child=_after_fork)
