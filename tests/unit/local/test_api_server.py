"""What the API server of the embedded cluster does when its clients disconnect."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import aiohttp
import pytest

from kftrain_local.server.admission import admit
from kftrain_local.server.api_server import ApiServer
from kftrain_local.server.resources import NAMESPACES, PODS
from kftrain_local.server.store import Store


def test_a_client_that_leaves_while_it_is_written_to_is_no_fault(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.ERROR)

    def gone(*_: Any) -> Any:
        raise ConnectionResetError("Cannot write to closing transport")

    async def ask() -> int:
        async with ApiServer(_store(), "secret", "page", admit(Store())) as server:
            server.reader.find_log = gone
            url = f"{server.url}/api/v1/namespaces/ml/pods/pod/log"
            async with aiohttp.ClientSession() as client, client.get(url) as response:
                return response.status

    assert asyncio.run(ask()) == 200
    assert caplog.messages == []


def _store() -> Store:
    store = Store()
    store.add(NAMESPACES, store.create(NAMESPACES, "", {"metadata": {"name": "ml"}}))
    spec = {"nodeName": "node", "containers": [{"name": "main", "image": "x"}]}
    store.add(PODS, store.create(PODS, "ml", {"metadata": {"name": "pod"}, "spec": spec}))
    return store
