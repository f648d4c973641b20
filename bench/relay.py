"""Counts the bytes between clients and the embedded cluster."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from kftrain_local.api_client import read_kubeconfig


class Relay:
    """`async with Relay(of_the_cluster, to_write) as relay:`; clients use `relay.kubeconfig`."""

    def __init__(self, source: Path, kubeconfig: Path) -> None:
        self.kubeconfig = kubeconfig
        self.bytes = 0
        self._source = source
        self._host = urlsplit(read_kubeconfig(source).server).netloc
        self._open: list[asyncio.StreamWriter] = []
        self._at_work: list[asyncio.Future[Any]] = []

    async def __aenter__(self) -> Relay:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        self._own = f"127.0.0.1:{port}"
        text = self._source.read_text(encoding="utf-8").replace(self._host, self._own)
        self.kubeconfig.write_text(text, encoding="utf-8")
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for writer in self._open:
            writer.close()
        await asyncio.gather(*self._at_work)

    async def _connected(
        self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter
    ) -> None:
        host, _, port = self._host.partition(":")
        from_server, to_server = await asyncio.open_connection(host, int(port))
        self._open += (to_client, to_server)
        both = asyncio.gather(
            self._pass_on(from_client, to_server), self._pass_on(from_server, to_client)
        )
        self._at_work.append(both)
        await both

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while some := await reader.read(1 << 16):
                self.bytes += len(some)
                # The cluster answers only requests with its own host name.
                writer.write(some.replace(self._own.encode(), self._host.encode()))
                await writer.drain()
        writer.close()
