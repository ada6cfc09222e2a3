"""What the ports answer: the main port for this process, the side port for all processes of the server."""

import sys
from collections.abc import Callable

from llm_heartbeat import merge, peers
from llm_heartbeat.report import JSON_TYPE, TEXT_TYPE, Report, response
from llm_heartbeat.side_port import Answer
from llm_heartbeat.state import State

_FAILED_OURSELVES = b'{"status": "unknown", "failed": [], "reason": "the heartbeat itself failed; see the log"}\n'


class Answers:
    """If we fail at an answer it is 200 `unknown`: our own error restarts nobody and takes nobody out."""

    def __init__(self, state: State, serves: Callable[[], bool]) -> None:
        self._state = state
        self._serves = serves

    def main_port(self, endpoint: str, query: str) -> Answer:
        """Asked in the loop's thread."""
        return self._respond(
            lambda: self._state.report(endpoint, from_loop=True), query, details=self._state.settings.details
        )

    def side_port(self, path: str, query: str) -> Answer | None:
        """Asked in a thread of the side port; None: no such path."""
        endpoint = self._state.settings.endpoints.get(path)
        if endpoint is not None:
            return self._respond(lambda: self.merged(endpoint), query, details=True)
        if path == "/metrics":
            return self._metrics()
        if path == "/":
            return 200, TEXT_TYPE, f"llm_heartbeat: {', '.join(self._state.settings.endpoints)}, /metrics\n".encode()
        return None

    def merged(self, endpoint: str) -> Report:
        """Own answer and that of the server's other processes."""
        state = self._state
        own = state.report(endpoint)
        where = peers.directory(state.settings.state_dir)
        if where is None:
            return own
        now, since = state.clock(), state.watch.watching_since
        look = merge.Look(
            now=now,
            wall=state.wall(),
            watching_since=now if since is None else since,
            live_after=state.settings.live_after,
            serves=self._serves(),
        )
        return merge.merge(own, peers.others(where), look)

    def _respond(self, report: Callable[[], Report], query: str, details: bool) -> Answer:
        with self._state.faults.passed_by("answer"):
            return response(report(), query, details)
        return 200, JSON_TYPE, _FAILED_OURSELVES

    def _metrics(self) -> Answer:
        # Not imported for a scrape: it decides at its import whether it works for several processes, and vLLM sets the
        # variable for that while it starts.
        if "prometheus_client" not in sys.modules:
            return 503, TEXT_TYPE, b"no metrics before the server runs\n"
        with self._state.faults.passed_by("metrics"):
            from llm_heartbeat.metrics import page

            return (200, *page())
        return 500, TEXT_TYPE, b"the metrics could not be collected; see the log\n"
