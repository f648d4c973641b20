"""A TLS server that accepts only requests with the right token, for tests of credentials."""

from __future__ import annotations

import contextlib
import json
import socketserver
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.control_plane.certificates import LOOPBACK, make_certificates, write_certificates


@contextlib.contextmanager
def serving(server: socketserver.BaseServer) -> Iterator[None]:
    """Runs in a thread until the block ends."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Doorkeeper:
    """Answers its name to requests with the token, and 401 to all others, in Kubernetes' words."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.token = "first-hush"
        self.seen: list[str] = []
        """The tokens that it received, one per request."""
        write_certificates(make_certificates(), folder)
        self.ca = folder / "ca.crt"
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
        self._server = ThreadingHTTPServer((LOOPBACK, 0), self._handler())
        self._server.daemon_threads = True
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @contextlib.contextmanager
    def at_work(self) -> Iterator[Doorkeeper]:
        with serving(self._server):
            yield self

    def kubeconfig(self, **user: Any) -> dict[str, Any]:
        """With the given user, or with the current token."""
        cluster = {
            "server": f"https://{LOOPBACK}:{self.port}",
            "certificate-authority": str(self.ca),
        }
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": self.name,
            "clusters": [{"name": self.name, "cluster": cluster}],
            "contexts": [{"name": self.name, "context": {"cluster": self.name, "user": self.name}}],
            "users": [{"name": self.name, "user": user or {"token": self.token}}],
        }

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        keeper = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                scheme, _, token = self.headers.get("Authorization", "").partition(" ")
                token = token if scheme.lower() == "bearer" else ""
                keeper.seen.append(token)
                good = token == keeper.token
                refusal = {"kind": "Status", "message": "Unauthorized", "reason": "Unauthorized"}
                body = json.dumps({"gitVersion": keeper.name} if good else refusal).encode()
                self.send_response(200 if good else 401)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        return Handler
