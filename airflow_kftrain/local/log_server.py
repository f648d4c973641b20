"""Serves container logs to the API server over HTTPS, as a kubelet does.

It listens on loopback only and knows one path, `GET /containerLogs/{namespace}/{pod}/{container}`.
The agent is not told by which certificate it could recognise the API server, so it cannot ask who
calls: whoever runs programs on this machine can read the logs of its pods, as with any port of
a development server. Nothing can be listed, written or started through it.
"""

from __future__ import annotations

import datetime
import shutil
import ssl
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from aiohttp import web

from airflow_kftrain.errors import KfTrainError
from airflow_kftrain.local.container_log import ContainerLog, LogOptions, LogReader, read_options


class CannotServe(KfTrainError):
    """The port is taken, or no certificate can be made."""


class NoLog(KfTrainError):
    """There is no such log: the HTTP code and the text that a kubelet answers with."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class FoundLog(NamedTuple):
    path: Path
    growing: ContainerLog | None
    """None where the run has ended."""


FindLog = Callable[[str, str, str, bool], FoundLog]
"""(namespace, pod, container, previous) -> its log; raises NoLog."""


class LogServer:
    def __init__(self, find: FindLog) -> None:
        self._find = find
        app = web.Application()
        app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", self._serve)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True)

    async def start(self, folder: Path, port: int) -> int:
        """Listen; port 0 takes any free one. Returns the port; raises CannotServe."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*make_certificate(folder))
        await self._runner.setup()
        try:
            # Followers do not hold up the end of the agent.
            site = web.TCPSite(self._runner, "127.0.0.1", port, ssl_context=context)
            await site.start()
        except OSError as error:
            raise CannotServe(f"port {port} on 127.0.0.1 cannot be had: {error}") from error
        return int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        await self._runner.cleanup()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        where = request.match_info
        try:
            options = read_options(request.query, time.time())
            found = self._find(
                where["namespace"], where["pod"], where["container"], options.previous
            )
        except ValueError:
            return web.Response(status=422, text='{"message": "Invalid request."}')
        except NoLog as missing:
            return web.Response(status=missing.code, text=str(missing))
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        await _send(response, found, options)
        await response.write_eof()
        return response


async def _send(response: web.StreamResponse, found: FoundLog, options: LogOptions) -> None:
    reader = LogReader(found.path, options)
    while True:
        # Asked before reading: what is written after the last read is not missed.
        last = not options.follow or found.growing is None or found.growing.finished
        for block in reader.read():
            if block:
                await response.write(block)
        if last or reader.full or found.growing is None:
            return
        await found.growing.more()


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """A self-signed certificate and its key; raises CannotServe."""
    certificate, key = folder / "tls.crt", folder / "tls.key"
    if openssl := shutil.which("openssl"):
        made = subprocess.run(
            [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "3650"]
            + ["-subj", "/CN=127.0.0.1", "-keyout", str(key), "-out", str(certificate)],
            capture_output=True,
            text=True,
        )
        if made.returncode:
            raise CannotServe(f"openssl could not make a certificate: {made.stderr.strip()[-300:]}")
    else:
        _certificate_by_library(certificate, key)
    key.chmod(0o600)
    return certificate, key


def _certificate_by_library(certificate: Path, key: Path) -> None:
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import rsa
    except ImportError as error:
        raise CannotServe(
            "logs are served over TLS: install openssl or the Python package cryptography"
        ) from error
    private = rsa.generate_private_key(65537, 2048)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.timezone.utc)
    signed = (
        x509.CertificateBuilder(name, name, private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=3650))
        .sign(private, hashes.SHA256())
    )
    kind = serialization.Encoding.PEM
    plain = serialization.NoEncryption()
    key.touch(0o600)
    key.write_bytes(private.private_bytes(kind, serialization.PrivateFormat.PKCS8, plain))
    certificate.write_bytes(signed.public_bytes(kind))
