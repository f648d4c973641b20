"""Adds TLS to an API server that has none, as real ones have it, and counts the requests.

Without TLS the measurement would favour the peer: it creates a client for each poll, and a client
without a certificate authority loads all those of the machine.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import yaml
from aiohttp import web
from yarl import URL

from tests.control_plane.certificates import LOOPBACK, make_certificates, write_certificates

_HOP_BY_HOP = ("Host", "Connection", "Transfer-Encoding", "Content-Length")


class TlsFront:
    """`async with TlsFront(kubeconfig, folder) as front:`; clients use `front.kubeconfig`."""

    def __init__(self, kubeconfig: Path, folder: Path) -> None:
        self._config = yaml.safe_load(kubeconfig.read_text())
        self._upstream = str(self._config["clusters"][0]["cluster"]["server"])
        self._folder = folder
        self._ending = AsyncExitStack()
        self.kubeconfig = folder / "kubeconfig"
        self.requests = 0

    async def __aenter__(self) -> TlsFront:
        files = await asyncio.to_thread(make_certificates)
        write_certificates(files, self._folder)
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(self._folder / "tls.crt", self._folder / "tls.key")
        async with AsyncExitStack() as ending:
            self._session = await ending.enter_async_context(
                aiohttp.ClientSession(
                    connector=aiohttp.TCPConnector(limit=0),
                    timeout=aiohttp.ClientTimeout(total=None),
                    auto_decompress=False,
                )
            )
            app = web.Application()
            app.router.add_route("*", "/{path:.*}", self._pass_on)
            runner = web.AppRunner(app, access_log=None, handler_cancellation=True)
            await runner.setup()
            ending.push_async_callback(runner.cleanup)
            await web.TCPSite(
                runner, LOOPBACK, 0, ssl_context=tls, backlog=4096, shutdown_timeout=0.1
            ).start()
            cluster = self._config["clusters"][0]["cluster"]
            cluster["server"] = f"https://{LOOPBACK}:{runner.addresses[0][1]}"
            cluster["certificate-authority-data"] = base64.b64encode(files["ca.crt"]).decode()
            self.kubeconfig.write_text(yaml.safe_dump(self._config))
            self._ending = ending.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._ending.aclose()

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        self.requests += 1
        headers = [each for each in request.headers.items() if each[0] not in _HOP_BY_HOP]
        async with self._session.request(
            request.method,
            URL(self._upstream + request.raw_path, encoded=True),
            headers=headers,
            data=await request.read(),
        ) as answer:
            headers = [each for each in answer.headers.items() if each[0] not in _HOP_BY_HOP]
            response = web.StreamResponse(status=answer.status, headers=headers)
            await response.prepare(request)
            async for piece in answer.content.iter_any():
                await response.write(piece)
            await response.write_eof()
            return response
