"""A small HTTP server in a thread of its own: it answers while the loop is blocked."""

import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, str, bytes]
Answers = Callable[[str, str], Answer | None]

_SIMULTANEOUS = 16
_CLIENT_TIMEOUT = 5.0


class SidePort:
    """Serves `answers(path, query)` on the first free port of a range. OSError if there is none."""

    def __init__(self, host: str, ports: range, answers: Answers) -> None:
        self._server = _bind(host, ports, answers)
        self.address: tuple[str, int] = self._server.server_address[:2]  # type: ignore[assignment]
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.2}, name="llm-heartbeat-http", daemon=True
        )

    def start(self) -> None:
        """Begin to answer. RuntimeError where no thread can be had; the port is free again then."""
        try:
            self._thread.start()
        except RuntimeError:
            self._server.server_close()
            raise

    def stop(self) -> None:
        """Stop and free the port."""
        self._server.shutdown()
        self._server.server_close()

    def close_inherited(self) -> None:
        """In a forked child: let go of the port, which would stay taken after the parent's end."""
        self._server.socket.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, host: str, port: int, answers: Answers) -> None:
        six = ":" in host or (not host and socket.has_dualstack_ipv6())
        self.address_family = socket.AF_INET6 if six else socket.AF_INET
        self.answers = answers
        self._free = threading.BoundedSemaphore(_SIMULTANEOUS)
        super().__init__((host, port), _Handler)

    def server_bind(self) -> None:
        # The base class would also ask DNS for the host's name, which may take seconds.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        # Slow or many clients must not become threads without end inside somebody else's server.
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no more threads
            self._free.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is no news."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = _CLIENT_TIMEOUT
    server_version = "llm-heartbeat"
    sys_version = ""

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_POST(self) -> None:
        self._send((405, "text/plain; charset=utf-8", b"use GET or HEAD\n"), with_body=True)

    def _answer(self, with_body: bool) -> None:
        path, _, query = self.path.partition("?")
        self._send(self.server.answers(path, query) or (404, "text/plain; charset=utf-8", b"404\n"), with_body)

    def _send(self, answer: Answer, with_body: bool) -> None:
        code, content_type, body = answer
        self.send_response(code)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        if code == 405:
            self.send_header("Allow", "GET, HEAD")
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class names it so
        """Probes are not news."""


def _bind(host: str, ports: range, answers: Answers) -> _Server:
    for port in ports:
        try:
            return _Server(host, port, answers)
        except OSError:
            if port == ports[-1]:
                raise
    raise OSError("no port given")
