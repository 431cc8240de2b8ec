"""The web server of `purra inspect`: one page, a few JSON answers, loopback only, behind a token.

It answers GET and nothing else, so a page of somebody else can make it do nothing; the token in the
address keeps other users of the machine out, and the Host header must name the loopback, which
keeps rebound names out. Requests are served on threads of the standard library's server; what they
need of the store is asked on the kernel's loop. Nothing is cached: the store is the truth, and a
person's page asks once a second.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from purra.errors import PurraError
from purra.values import thaw

__all__ = ["Ask", "Page", "serve"]

Ask = Callable[[str, Mapping[str, str]], Any]
"""Answers a path below `/api/` from any thread: a strict value. Raises `PurraError`."""
Answer = Callable[[Mapping[str, str]], Awaitable[Any]]

LOOPBACK: Final = "127.0.0.1"
_HOSTS: Final = frozenset({"127.0.0.1", "localhost"})
_SECURITY: Final = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; script-src "
    "'unsafe-inline'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


class Page(ThreadingHTTPServer):
    """The server; `address` is what a browser opens."""

    daemon_threads = True

    def __init__(self, port: int, token: str, ask: Ask) -> None:
        super().__init__((LOOPBACK, port), _Handler)
        self.token = token
        self.ask = ask

    @property
    def address(self) -> str:
        """With the token, which the page keeps out of its own address afterwards."""
        return f"http://{LOOPBACK}:{self.server_port}/?token={self.token}"


class _Handler(BaseHTTPRequestHandler):
    server: Page
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query = {name: values[-1] for name, values in parse_qs(url.query).items()}
        host = self.headers.get("Host", "").rpartition(":")[0]
        if host not in _HOSTS or not self._allowed(query):
            self._send(HTTPStatus.FORBIDDEN, "text/plain", b"the token is missing or wrong\n")
        elif url.path == "/":
            page = files("purra_hosts.app.inspect").joinpath("page.html").read_bytes()
            self._send(HTTPStatus.OK, "text/html; charset=utf-8", page)
        elif url.path.startswith("/api/"):
            self._answer(url.path.removeprefix("/api/"), query)
        else:
            self._send(HTTPStatus.NOT_FOUND, "text/plain", b"nothing here\n")

    def _allowed(self, query: Mapping[str, str]) -> bool:
        given = query.get("token", "") or self.headers.get("X-Token", "")
        return hmac.compare_digest(given.encode(), self.server.token.encode())

    def _answer(self, path: str, query: Mapping[str, str]) -> None:
        try:
            value, status = self.server.ask(path, query), HTTPStatus.OK
        except PurraError as error:
            value = {"error": {"code": error.code, "message": str(error)}}
            missing = error.code in ("run_not_found", "not_found")
            status = HTTPStatus.NOT_FOUND if missing else HTTPStatus.BAD_REQUEST
        body = json.dumps(thaw(value), ensure_ascii=False, allow_nan=False).encode()
        self._send(status, "application/json", body)

    def _send(self, status: HTTPStatus, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in _SECURITY.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Requests of one's own page are not worth a line."""


def serve(page: Page) -> None:
    """Serves until `page.shutdown()`. Runs on a thread of its own."""
    page.serve_forever(poll_interval=0.1)
