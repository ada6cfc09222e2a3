"""The running heartbeat of one process: the beats in the loop, and what runs beside it."""

import asyncio
import logging
import os
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from weakref import WeakSet

from llm_heartbeat import peers, process, sources
from llm_heartbeat import settings as options
from llm_heartbeat.answers import Answers
from llm_heartbeat.culprit import Culprit, capture
from llm_heartbeat.dependencies import Check, Dependency, parse
from llm_heartbeat.drain import SigtermHook
from llm_heartbeat.faults import log
from llm_heartbeat.listening import Listening
from llm_heartbeat.state import State
from llm_heartbeat.systemd import Notifier
from llm_heartbeat.warmup import Warm, Warmup
from llm_heartbeat.watchdog import Watchdog


class Heartbeat(State):
    """One per process, see `get()`; what the application may say to it stands in `State`.

    `start()` is called in the loop's thread and may be called again; `stop()` undoes it.
    """

    def __init__(self, settings: options.Settings | None = None) -> None:
        problems: tuple[str, ...] = ()
        if settings is None:
            settings, problems = options.read()
        super().__init__(settings)
        self.startup.started -= process.age()
        self.answers = Answers(self, serves=lambda: self._loop is not None)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_thread = 0
        self._timer: asyncio.TimerHandle | None = None
        self._hook: SigtermHook | None = None
        self._warmup: Warmup | None = None
        self._notifier = Notifier()
        self._snapshot_due = 0.0
        self._listening = Listening(settings, self.answers.side_port, self.faults, self.clock)
        self._watchdog = Watchdog(
            max(0.02, min(0.25, settings.blocked_after / 2, settings.live_after / 4)),
            {
                "watchdog": self._look,
                "metrics": self._export,
                "side_port": self._listening.look,
                "systemd": self._tell_systemd,
                "peers": self._meet_peers,
                "exit": self._exit_if_load_failed,
            },
            self.faults,
        )
        _all.add(self)
        checks, wrong = parse(settings.dependencies)
        for name, check in checks.items():
            self.essential(name, check)
        for problem in (*problems, *wrong):
            self.faults.counts["settings"] += 1
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
        """Register a dependency without which no request can succeed; after `start()` in the loop's thread.

        `check` is an async function: it raises, returns False or takes longer than `timeout` seconds if it is not there.
        `may_leave`: share of the replicas that may become unready for it (0: none, then it only shows `degraded`).
        """
        if name in self.dependencies:
            self.dependencies[name].stop()
        self.dependencies[name] = Dependency(
            name,
            check,
            timeout=self.settings.dependency_timeout if timeout is None else timeout,
            every=self.settings.dependency_every if every is None else every,
            share=self.settings.dependency_may_leave if may_leave is None else may_leave,
            replica=self.settings.replica_name,
            faults=self.faults,
        )
        if self._loop is not None:
            self.dependencies[name].start(self._loop)

    def source(self, name: str, read: sources.Read) -> None:
        """Read `queue`, `kv` or `gpu` by a function of the application, in a thread."""
        if name in self.sources:
            self.sources[name].stop()
        self.sources[name] = sources.Source(name, read, self.settings.poll, self.faults)
        if self._loop is not None:
            self.sources[name].start()

    def on_warmup(self, warm: Warm) -> None:
        """An async function that warms the model up: run once after loading, and again after `needs_warmup()`."""
        self._warmup = Warmup(self, warm)
        self.needs_warmup()

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
        with self.faults.passed_by("peers"):
            if self.settings.state_dir:
                Path(self.settings.state_dir).mkdir(parents=True, exist_ok=True)
        with self.faults.passed_by("watchdog"):
            self._watchdog.start()
        self._listening.start()

    def stop(self) -> None:
        """Detach from the loop and free the side port; in the loop's thread."""
        with self.faults.passed_by("stop"):
            self._watchdog.stop()
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
            self.note_changes()  # the last one, why we drain, may be younger than the watchdog's last look
            self.detach()
            self._listening.stop()
            where = peers.directory(self.settings.state_dir)
            if where is not None:
                peers.file_of(where, os.getpid()).unlink(missing_ok=True)
        self._timer = self._hook = self._loop = None

    @property
    def listening(self) -> tuple[str, int] | None:
        """Address and port of the side port; None where there is none."""
        return self._listening.address

    def after_fork(self) -> None:
        """In a forked child: our threads are gone, and neither port nor signal is ours; `start()` begins anew."""
        super().after_fork()
        self._watchdog.after_fork()
        self._listening.after_fork()
        for source in self.sources.values():
            source.after_fork()
        if self._hook is not None:
            self._hook.remove()
        self._notifier = Notifier()
        self._timer = self._hook = self._loop = None

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
            self._watchdog.start()  # again, should it have died: nobody else would notice
        self._timer = loop.call_later(self.settings.interval, self._beat)

    # The watchdog's steps ---------------------------------------------------------------------------------------

    def _look(self) -> None:
        loop = self._loop
        if loop is not None and not loop.is_running():
            self.detach()  # asyncio.run() is over: what does not run cannot be late
        self.tick(self._find_culprit)
        if self.drain_since is not None and loop is not None:
            self.requests.end_overdue(self.clock() - self.drain_since, loop)

    def _find_culprit(self, blocked_seconds: float) -> Culprit | None:
        with self.faults.passed_by("culprit"):
            self._snapshot_due = 0.0  # the other processes should know at once
            return capture(self._loop_thread, time.time(), blocked_seconds)
        return None

    def _export(self) -> None:
        if self.metrics is not None:
            from llm_heartbeat.export import export

            export(self, self.metrics)

    def _tell_systemd(self) -> None:
        if self._notifier.listens:
            live, startup = self.answers.merged("live"), self.answers.merged("startup")
            status = ", ".join((startup.status, *live.failed, *filter(None, [self.drain_reason])))
            self._notifier.tick(self.clock(), live.good, startup.good, status)

    def _meet_peers(self) -> None:
        now = self.clock()
        where = peers.directory(self.settings.state_dir) if now >= self._snapshot_due else None
        if where is not None:
            self._snapshot_due = now + peers.EVERY
            peers.bury_dead(where)
            if self._loop is not None:
                peers.Snapshot.of(self).write(where)

    def _exit_if_load_failed(self) -> None:
        if not (self.load_has_failed and self.settings.exit_on_failed_load):
            return
        log.critical("the load failed, and LLM_HEARTBEAT_EXIT_ON_FAILED_LOAD is on: exit 1: %s", self.startup.reason)
        for handler in logging.getLogger().handlers:
            with suppress(Exception):  # a log handler that cannot flush must not keep a lost process alive
                handler.flush()
        os._exit(1)


_all: WeakSet[Heartbeat] = WeakSet()
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
    for heartbeat in tuple(_all):
        heartbeat.after_fork()


os.register_at_fork(after_in_child=_after_fork)
