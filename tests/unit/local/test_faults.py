"""The fault proxy between real sockets: every fault is seen from the client's end."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gzip
import json
import re
import signal
import socket
import stat
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest
import yaml
from aiohttp import web
from yarl import URL

from kftrain_local.api_client import BadKubeconfig, read_kubeconfig
from kftrain_local.faults.command import BadFault, CannotProxy, Fault, FaultProxy, running
from kftrain_local.faults.rules import call_of

PODS = "/api/v1/namespaces/ml/pods"
WATCH = f"{PODS}?watch=true"
EVENT = b'{"type": "ADDED", "object": {}}\n'
PATIENCE = 60.0


def in_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), PATIENCE))

    return run


class Upstream:
    """An API server that records its requests, and streams what the test sends."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.pieces: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.stream_type = "application/json"
        self.left = asyncio.Event()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        call = {"method": request.method, "path": request.raw_path, "body": body.decode()}
        self.asked.append(call | {"headers": dict(request.headers)})
        if "watch" in request.query or request.path.endswith("/log"):
            return await self._stream(request)
        if request.path.endswith("/held"):
            await self.pieces.get()
        if request.path.endswith("/moved"):
            return web.Response(status=302, headers={"Location": "/elsewhere"})
        if request.path.endswith("/zipped"):
            headers = {"Content-Encoding": "gzip", "Connection": "X-Hop", "X-Hop": "1"}
            return web.Response(body=gzip.compress(b"zipped"), headers=headers)
        return web.json_response(call, status=201, reason="Made", headers={"Warning": "299 - x"})

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": self.stream_type})
        await response.prepare(request)
        try:
            while (piece := await self.pieces.get()) is not None:
                if not piece:
                    assert request.transport is not None
                    request.transport.close()
                    break
                await response.write(piece)
        except asyncio.CancelledError:
            self.left.set()
            raise
        return response


def a_kubeconfig(folder: Path, server: str, **user: str) -> Path:
    context = {"cluster": "c", "user": "u", "namespace": "ml"}
    config = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": context}],
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": user}],
    }
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return path


@contextlib.asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[tuple[Upstream, Path]]:
    upstream = Upstream()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", upstream.answer)
    runner = web.AppRunner(
        app,
        handler_cancellation=True,
        auto_decompress=False,
        shutdown_timeout=0.1,
        max_line_size=1 << 20,
    )
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        server = f"http://127.0.0.1:{runner.addresses[0][1]}/prefix"
        yield upstream, a_kubeconfig(folder, server, token="the-token")
    finally:
        await runner.cleanup()


class Answer(NamedTuple):
    status: int
    reason: str
    headers: dict[str, str]
    body: bytes


class Client:
    """Calls through the proxy, with the kubeconfig that it wrote."""

    def __init__(self, proxy: FaultProxy, session: aiohttp.ClientSession) -> None:
        self.server = read_kubeconfig(proxy.kubeconfig).server
        self.port = int(self.server.split(":")[2].split("/")[0])
        self._session = session

    async def call(self, path: str = PODS, method: str = "GET", **options: Any) -> Answer:
        async with self.open(path, method, **options) as answer:
            return Answer(answer.status, answer.reason, dict(answer.headers), await answer.read())

    def open(self, path: str = WATCH, method: str = "GET", **options: Any) -> Any:
        return self._session.request(
            method, URL(self.server + path, encoded=True), allow_redirects=False, **options
        )


@contextlib.asynccontextmanager
async def world(folder: Path, *faults: Fault) -> AsyncIterator[tuple[Upstream, FaultProxy, Client]]:
    connector = aiohttp.TCPConnector(force_close=True)
    async with (
        serving(folder) as (upstream, kubeconfig),
        FaultProxy(kubeconfig, *faults) as proxy,
        aiohttp.ClientSession(connector=connector, auto_decompress=False) as session,
    ):
        yield upstream, proxy, Client(proxy, session)


async def some_time(work: Awaitable[Any]) -> bool:
    """Whether it ends within a quarter of a second."""
    try:
        await asyncio.wait_for(asyncio.shield(work), 0.25)
    except asyncio.TimeoutError:
        return False
    return True


# ----- what is passed on


@in_loop
async def test_a_call_arrives_as_it_was_sent_with_the_credentials_of_the_kubeconfig(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as (upstream, _, client):
        headers = {
            "Authorization": "Bearer of the client",
            "Connection": "X-Hop",
            "X-Hop": "1",
            "Accept": "application/json;as=Table",
            "Content-Type": "application/merge-patch+json",
            "Content-Encoding": "gzip",
        }
        path = f"{PODS}/a%2Fb%2f%7e?fieldManager=x%20y&force"
        answer = await client.call(path, "PATCH", data=b"not really gzip", headers=headers)
    [asked] = upstream.asked
    assert (asked["method"], asked["path"]) == ("PATCH", f"/prefix{path}")
    assert asked["body"] == "not really gzip"
    sent = asked["headers"]
    assert sent["Authorization"] == "Bearer the-token"
    assert sent["Content-Length"] == "15"
    assert {name: sent[name] for name in ("Accept", "Content-Type", "Content-Encoding")} == {
        name: headers[name] for name in ("Accept", "Content-Type", "Content-Encoding")
    }
    assert "X-Hop" not in sent
    assert (answer.status, answer.reason, answer.headers["Warning"]) == (201, "Made", "299 - x")


@in_loop
async def test_nothing_is_added_to_a_call_without_headers(tmp_path: Path) -> None:
    async with world(tmp_path) as (upstream, _, client):
        path = client.server.split(str(client.port))[1] + "/version"
        reader, writer = await asyncio.open_connection("127.0.0.1", client.port)
        host = f"127.0.0.1:{client.port}"
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        assert b"201 Made" in await reader.read()
        writer.close()
    assert set(upstream.asked[0]["headers"]) <= {"Host", "Authorization", "Connection"}


@in_loop
async def test_a_body_may_come_in_chunks(tmp_path: Path) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for number in range(3):
            yield b"%d" % number * 70_000

    async with world(tmp_path) as (upstream, _, client):
        await client.call(PODS, "POST", data=pieces())
        body = upstream.asked[0]["body"]
        assert body == "0" * 70_000 + "1" * 70_000 + "2" * 70_000
        assert upstream.asked[0]["headers"]["Transfer-Encoding"] == "chunked"


@in_loop
async def test_an_encoded_answer_stays_encoded_and_hop_by_hop_headers_stay_behind(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as (_, _, client):
        answer = await client.call("/zipped")
        assert gzip.decompress(answer.body) == b"zipped"
        assert answer.headers["Content-Encoding"] == "gzip"
        assert "X-Hop" not in answer.headers


@in_loop
async def test_redirects_are_for_the_client_to_follow(tmp_path: Path) -> None:
    async with world(tmp_path) as (upstream, _, client):
        answer = await client.call("/moved")
        assert (answer.status, answer.headers["Location"]) == (302, "/elsewhere")
        assert len(upstream.asked) == 1


@in_loop
async def test_a_long_path_and_a_head_are_passed_on(tmp_path: Path) -> None:
    async with world(tmp_path) as (upstream, _, client):
        assert (await client.call(f"{PODS}?labelSelector={'x' * 20_000}")).status == 201
        assert (await client.call("/readyz", "HEAD")).status == 201
        assert [asked["method"] for asked in upstream.asked] == ["GET", "HEAD"]


@pytest.mark.parametrize("path", [WATCH, f"{PODS}/p/log?follow=true"])
@in_loop
async def test_a_stream_flows_piece_by_piece(tmp_path: Path, path: str) -> None:
    async with world(tmp_path) as (upstream, _, client), client.open(path) as answer:
        for piece in (b"half a ", b"line\n", b"\x00\xff" * 10):
            upstream.pieces.put_nowait(piece)
            assert await answer.content.readexactly(len(piece)) == piece
        upstream.pieces.put_nowait(None)
        assert await answer.content.read() == b""


@in_loop
async def test_a_client_that_leaves_ends_the_call_to_the_server(tmp_path: Path) -> None:
    async with world(tmp_path) as (upstream, _, client):
        async with client.open():
            assert not upstream.left.is_set()
        await upstream.left.wait()


@in_loop
async def test_a_server_that_breaks_off_is_seen_to_break_off(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with world(tmp_path) as (upstream, _, client), client.open() as answer:
        upstream.pieces.put_nowait(EVENT)
        assert await answer.content.readexactly(len(EVENT)) == EVENT
        upstream.pieces.put_nowait(b"")
        with pytest.raises(aiohttp.ClientPayloadError):
            await answer.content.read()
    assert "ClientPayloadError" in caplog.text


@in_loop
async def test_a_server_that_is_not_there_gives_no_answer(tmp_path: Path) -> None:
    async with (
        FaultProxy(a_kubeconfig(tmp_path, "http://127.0.0.1:1")) as proxy,
        aiohttp.ClientSession() as session,
    ):
        with pytest.raises(aiohttp.ServerDisconnectedError):
            await Client(proxy, session).call()


# ----- who may use it


@pytest.mark.parametrize(
    "path", ["/", "/api/v1/pods", "//api/v1/pods", "/{wrong}/api/v1/pods", "/{short}/api/v1/pods"]
)
@in_loop
async def test_without_the_secret_nothing_is_passed_on(tmp_path: Path, path: str) -> None:
    async with world(tmp_path) as (upstream, proxy, client):
        server, _, secret = client.server.rpartition("/")
        client.server = server
        path = path.format(wrong="0" * len(secret), short=secret[:-1])
        assert (await client.call(path, headers={"Authorization": "Bearer x"})).status == 403
        assert (upstream.asked, proxy.calls) == ([], {})


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1"]
)
@in_loop
async def test_another_host_is_refused_though_the_secret_is_right(
    tmp_path: Path, host: str
) -> None:
    async with world(tmp_path) as (upstream, _, client):
        answer = await client.call(headers={"Host": host.format(port=client.port)})
        assert (answer.status, upstream.asked) == (403, [])
        answer = await client.call(headers={"Host": f"localhost:{client.port}"})
        assert (answer.status, len(upstream.asked)) == (201, 1)


@in_loop
async def test_the_kubeconfig_is_private_and_has_no_credentials(tmp_path: Path) -> None:
    async with world(tmp_path) as (_, proxy, client):
        text = proxy.kubeconfig.read_text()
        assert stat.S_IMODE(proxy.kubeconfig.stat().st_mode) == 0o600
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[0-9a-f]{32}", client.server)
        assert "the-token" not in text
        context = yaml.safe_load(text)["contexts"][0]
        assert context["context"] == {"cluster": "c", "user": "u", "namespace": "ml"}
    assert not proxy.kubeconfig.exists()


@in_loop
async def test_the_port_is_on_loopback_only(tmp_path: Path) -> None:
    async with world(tmp_path) as (_, _, client):
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.2", client.port)


# ----- rules


@pytest.mark.parametrize(
    ("method", "path", "verb", "resource"),
    [
        ("GET", "/api/v1/pods", "list", "pods"),
        ("GET", PODS, "list", "pods"),
        ("GET", WATCH, "watch", "pods"),
        ("GET", f"{PODS}?watch=1", "watch", "pods"),
        ("GET", f"{PODS}?watch=false", "list", "pods"),
        ("GET", f"{PODS}/p", "get", "pods"),
        ("GET", f"{PODS}/p/log?follow=true", "get", "pods/log"),
        ("HEAD", f"{PODS}/p", "get", "pods"),
        ("POST", f"{PODS}/p/binding", "create", "pods/binding"),
        ("POST", "/apis/kubeflow.org/v1/namespaces/ml/pytorchjobs", "create", "pytorchjobs"),
        ("PUT", "/apis/batch/v1/namespaces/ml/jobs/j/status", "update", "jobs/status"),
        ("PATCH", "/apis/batch/v1/namespaces/ml/jobs/j", "patch", "jobs"),
        ("DELETE", f"{PODS}/p", "delete", "pods"),
        ("DELETE", PODS, "deletecollection", "pods"),
        ("GET", "/api/v1/namespaces", "list", "namespaces"),
        ("GET", "/api/v1/namespaces/ml", "get", "namespaces"),
        ("PUT", "/api/v1/namespaces/ml/finalize", "update", "namespaces/finalize"),
        ("GET", "/version", "get", "/version"),
        ("GET", "/apis/batch/v1", "get", "/apis/batch/v1"),
        ("GET", "/", "get", "/"),
    ],
)
def test_calls_have_the_names_that_rbac_gives_them(
    method: str, path: str, verb: str, resource: str
) -> None:
    url = URL(path)
    assert call_of(method, url.raw_path, url.query) == (verb, resource)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (401, "Unauthorized"),
        (403, "Forbidden"),
        (410, "Expired"),
        (429, "TooManyRequests"),
        (500, "InternalError"),
        (503, "ServiceUnavailable"),
    ],
)
@in_loop
async def test_a_refusal_is_a_status(tmp_path: Path, code: int, reason: str) -> None:
    fault = Fault(verb="list", code=code, retry_after=7)
    async with world(tmp_path, fault) as (upstream, proxy, client):
        answer = await client.call()
        status = json.loads(answer.body)
        assert (answer.status, status["code"], status["reason"]) == (code, code, reason)
        assert (status["kind"], status["status"]) == ("Status", "Failure")
        assert answer.headers.get("Retry-After") == ("7" if code == 429 else None)
        assert (upstream.asked, proxy.calls["list", "pods"]) == ([], 1)
        assert (await client.call(PODS, "POST", data=b"{}")).status == 201


@pytest.mark.parametrize(
    ("rule", "calls", "hit"),
    [
        ("share=0.5 code=503", 100, 50),
        ("share=0.3 code=503", 10, 3),
        ("share=0.1 code=503", 1, 1),
        ("share=0.75 code=503 times=2", 10, 2),
        ("verb=create code=503", 3, 0),
        ("resource=pods/log code=503", 3, 0),
        ("verb=list resource=pods code=503", 3, 3),
    ],
)
@in_loop
async def test_a_share_is_exact(tmp_path: Path, rule: str, calls: int, hit: int) -> None:
    async with world(tmp_path) as (upstream, proxy, client):
        fault = proxy.add(Fault.parse(rule))
        codes = [(await client.call()).status for _ in range(calls)]
        assert (codes.count(503), len(upstream.asked)) == (hit, calls - hit)
        assert (fault.hits, proxy.calls["list", "pods"]) == (hit, calls)


@in_loop
async def test_rules_come_and_go_and_several_may_hit_one_call(tmp_path: Path) -> None:
    async with world(tmp_path) as (_, proxy, client):
        slow = proxy.add(Fault(delay=0.2))
        refused = proxy.add(Fault(code=500))
        started = time.monotonic()
        assert (await client.call()).status == 500
        assert time.monotonic() - started >= 0.2
        proxy.remove(refused)
        assert (await client.call()).status == 201
        assert slow.hits == 2
        proxy.add(Fault(code=500))
        proxy.clear()
        assert (await client.call()).status == 201


@in_loop
async def test_latency_holds_up_its_own_call_only(tmp_path: Path) -> None:
    async with world(tmp_path, Fault(verb="create", delay=0.4)) as (upstream, _, client):
        slow = asyncio.ensure_future(client.call(PODS, "POST", data=b"{}"))
        assert not await some_time(slow)
        assert (await client.call()).status == 201
        assert [asked["method"] for asked in upstream.asked] == ["GET"]
        assert (await slow).status == 201


@in_loop
async def test_an_answer_is_lost_after_the_server_did_what_was_asked(tmp_path: Path) -> None:
    async with world(tmp_path, Fault(verb="create", cut=0)) as (upstream, _, client):
        with pytest.raises(aiohttp.ServerDisconnectedError):
            await client.call(PODS, "POST", data=b"{}")
        assert [asked["method"] for asked in upstream.asked] == ["POST"]


@in_loop
async def test_a_watch_is_cut_some_time_after_its_answer_began(tmp_path: Path) -> None:
    async with (
        world(tmp_path, Fault(verb="watch", cut=0.2)) as (upstream, _, client),
        client.open() as answer,
    ):
        upstream.pieces.put_nowait(EVENT)
        assert await answer.content.readexactly(len(EVENT)) == EVENT
        with pytest.raises(aiohttp.ClientPayloadError):
            await answer.content.read()
        await upstream.left.wait()


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ("verb=crate code=503", "verb=crate"),
        ("resource=PyTorchJob code=503", "resource=PyTorchJob"),
        ("share=0 code=503", "share=0"),
        ("share=nan code=503", "share=nan"),
        ("share=half code=503", "'share=half' is not a number"),
        ("code=418", "code=418"),
        ("times=0 code=503", "times=0"),
        ("delay=-1", "delay=-1"),
        ("delay=inf", "delay=inf"),
        ("cut=-1", "cut=-1"),
        ("retry_after=1.5 code=429", "'retry_after=1.5' is not a number"),
        ("retry_after=-1 code=429", "retry_after=-1"),
        ("kode=503", "'kode=503' is not one of verb="),
        ("code=503 code=500", "'code=500' is not one of"),
        ("seen=3 code=503", "'seen=3' is not one of"),
        ("code=", "'code=' is not one of"),
        ("verb=create", "it has no effect"),
        ("", "it has no effect"),
    ],
)
def test_a_bad_rule_is_refused_by_its_word(rule: str, told: str) -> None:
    with pytest.raises(BadFault) as refused:
        Fault.parse(rule)
    assert told in str(refused.value)
    assert f"fault {rule!r}: " in str(refused.value)


# ----- watches


@in_loop
async def test_open_watches_are_cut_and_nothing_else_is(tmp_path: Path) -> None:
    async with (
        world(tmp_path) as (upstream, proxy, client),
        client.open() as watch,
        client.open(f"{PODS}/p/log?follow=1") as log,
    ):
        assert proxy.cut() == 1
        with pytest.raises(aiohttp.ClientPayloadError):
            await watch.content.read()
        await upstream.left.wait()
        upstream.pieces.put_nowait(None)
        assert await log.content.read() == b""


@pytest.mark.parametrize("torn", [[], [b'{"type": "ADD', b'ED", "obj', b'ect": {}}\n']])
@in_loop
async def test_an_open_watch_expires_between_two_events(tmp_path: Path, torn: list[bytes]) -> None:
    async with world(tmp_path) as (upstream, proxy, client), client.open() as answer:

        async def passes(piece: bytes) -> None:
            upstream.pieces.put_nowait(piece)
            assert await answer.content.readexactly(len(piece)) == piece

        await passes(b"".join([EVENT, *torn[:1]]))
        assert proxy.expire() == 1
        for piece in torn[1:2]:
            await passes(piece)
        for piece in torn[2:]:
            upstream.pieces.put_nowait(piece + EVENT)
        *rest, last = (await answer.content.read()).splitlines(keepends=True)
        assert rest == torn[2:]
        event = json.loads(last)
        assert (event["type"], event["object"]["code"]) == ("ERROR", 410)
        assert (event["object"]["kind"], event["object"]["reason"]) == ("Status", "Expired")


@in_loop
async def test_an_open_watch_that_is_not_json_is_cut_when_it_expires(tmp_path: Path) -> None:
    async with world(tmp_path) as (upstream, proxy, client):
        upstream.stream_type = "application/vnd.kubernetes.protobuf;stream=watch"
        async with client.open() as answer:
            assert proxy.expire() == 1
            with pytest.raises(aiohttp.ClientPayloadError):
                await answer.content.read()


@in_loop
async def test_a_new_watch_is_told_in_its_stream_that_it_has_expired(tmp_path: Path) -> None:
    fault = Fault(verb="watch", code=410, times=1)
    async with world(tmp_path, fault) as (upstream, _, client):
        answer = await client.call(WATCH)
        event = json.loads(answer.body)
        assert (answer.status, event["type"], event["object"]["code"]) == (200, "ERROR", 410)
        assert upstream.asked == []
        upstream.pieces.put_nowait(None)
        assert (await client.call(WATCH)).body == b""


# ----- frozen and away


@in_loop
async def test_a_frozen_server_accepts_and_is_silent_until_it_thaws(tmp_path: Path) -> None:
    async with world(tmp_path) as (upstream, proxy, client), client.open() as watch:
        proxy.freeze()
        upstream.pieces.put_nowait(EVENT)
        upstream.pieces.put_nowait(None)
        seen = asyncio.ensure_future(watch.content.read())
        listed = asyncio.ensure_future(client.call())
        assert not await some_time(asyncio.wait([seen, listed], return_when="FIRST_COMPLETED"))
        assert len(upstream.asked) == 1
        proxy.thaw()
        assert await seen == EVENT
        assert (await listed).status == 201


@in_loop
async def test_an_answer_that_comes_from_the_server_is_frozen_too(tmp_path: Path) -> None:
    async with world(tmp_path) as (upstream, proxy, client):
        asked = asyncio.ensure_future(client.open("/held").__aenter__())
        while not upstream.asked:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        proxy.freeze()
        upstream.pieces.put_nowait(None)
        assert not await some_time(asked)
        proxy.thaw()
        (await asked).release()


@in_loop
async def test_a_delayed_call_is_frozen_too(tmp_path: Path) -> None:
    async with world(tmp_path, Fault(delay=0.1)) as (_, proxy, client):
        listed = asyncio.ensure_future(client.call())
        while not proxy.calls:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        proxy.freeze()
        assert not await some_time(listed)
        proxy.thaw()
        assert (await listed).status == 201


@in_loop
async def test_a_frozen_watch_can_be_cut(tmp_path: Path) -> None:
    async with world(tmp_path) as (upstream, proxy, client), client.open() as watch:
        proxy.freeze()
        upstream.pieces.put_nowait(EVENT)
        assert proxy.cut() == 1
        with pytest.raises(aiohttp.ClientPayloadError):
            await watch.content.read()


async def connected(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except ConnectionRefusedError:
        return False
    writer.close()
    return True


@in_loop
async def test_an_absent_server_refuses_and_resets_until_it_is_back(tmp_path: Path) -> None:
    async with world(tmp_path) as (upstream, proxy, client):
        idle, writer = await asyncio.open_connection("127.0.0.1", client.port)
        for _ in range(2):
            async with client.open() as watch:
                proxy.away()
                with pytest.raises(aiohttp.ClientPayloadError) as broken:
                    await watch.content.read()
                assert "reset" in str(broken.value).lower()
            assert not await connected(client.port)
            await upstream.left.wait()
            proxy.away()
            proxy.back()
            proxy.back()
            assert (await client.call()).status == 201
        with pytest.raises(ConnectionResetError):
            await idle.read()
        writer.close()


@in_loop
async def test_a_server_comes_back_by_itself(tmp_path: Path) -> None:
    async with world(tmp_path) as (_, proxy, client):
        started = time.monotonic()
        proxy.away(0.3)
        assert not await connected(client.port)
        while not await connected(client.port):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert time.monotonic() - started >= 0.3
        assert (await client.call()).status == 201
        proxy.away(0.1)
        proxy.away()  # the later command counts
        await asyncio.sleep(0.2)
        assert not await connected(client.port)
        proxy.clear()
        assert (await client.call()).status == 201


@in_loop
async def test_nobody_can_take_the_port_of_an_absent_server(tmp_path: Path) -> None:
    async with world(tmp_path) as (_, proxy, client):
        await client.call()
        proxy.away()
        for address in ("127.0.0.1", "0.0.0.0"):
            with socket.socket() as thief:
                thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                with pytest.raises(OSError, match="in use"):
                    thief.bind((address, client.port))


@in_loop
async def test_its_end_does_not_wait_for_watches(tmp_path: Path) -> None:
    async with world(tmp_path) as (_, proxy, client), client.open() as watch:
        proxy.freeze()
        started = time.monotonic()
        await proxy.__aexit__()
        assert time.monotonic() - started < PATIENCE / 2
        with pytest.raises(aiohttp.ClientPayloadError):
            await watch.content.read()


# ----- from code that blocks


@contextlib.contextmanager
def serving_elsewhere(folder: Path) -> Iterator[Path]:
    """The kubeconfig of an upstream in a process of its own."""
    program = (
        "import asyncio, pathlib, sys\n"
        "from tests.unit.local.test_faults import serving\n"
        "async def main():\n"
        f"    async with serving(pathlib.Path({str(folder)!r})):\n"
        "        print('ready', flush=True)\n"
        "        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)\n"
        "asyncio.run(main())\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield folder / "kubeconfig"
        assert process.stdin is not None
        process.stdin.close()


def fetch(kubeconfig: Path, path: str = PODS) -> int:
    """The code of a response; 0 if there is none."""
    try:
        with urllib.request.urlopen(read_kubeconfig(kubeconfig).server + path, timeout=5) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code
    except OSError:
        return 0


def test_a_synchronous_test_drives_it_from_its_own_thread(tmp_path: Path) -> None:
    with serving_elsewhere(tmp_path) as kubeconfig:
        with running(FaultProxy(kubeconfig, Fault(resource="pods", share=0.5, code=503))) as proxy:
            assert [fetch(proxy.kubeconfig) for _ in range(4)] == [503, 201, 503, 201]
            proxy.away()
            assert fetch(proxy.kubeconfig) == 0
            proxy.back()
            proxy.clear()
            assert fetch(proxy.kubeconfig) == 201
            assert proxy.calls["list", "pods"] == 5
        assert not proxy.kubeconfig.exists()


def test_what_cannot_start_is_told_to_synchronous_code_too(tmp_path: Path) -> None:
    with pytest.raises(BadKubeconfig), running(FaultProxy(tmp_path / "none")):
        pass
    target = tmp_path / "kubeconfig"
    a_kubeconfig(tmp_path, "http://127.0.0.1:1")
    before = target.read_text()
    with pytest.raises(CannotProxy, match="exists"), running(FaultProxy(target, write=target)):
        pass
    assert target.read_text() == before


# ----- the command line


def command(*words: str | Path) -> list[str]:
    return [sys.executable, "-m", "kftrain_local.faults", *map(str, words)]


class Shell:
    """The command line while it runs."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.kubeconfig = Path(self.said())

    def said(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def tell(self, line: str) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.said()


@contextlib.contextmanager
def shell(*words: str | Path) -> Iterator[Shell]:
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(command(*words), text=True, **pipes) as process:
        try:
            yield Shell(process)
        finally:
            process.kill()


def test_the_command_line_takes_rules_and_obeys_lines(tmp_path: Path) -> None:
    target = tmp_path / "through"
    with (
        serving_elsewhere(tmp_path) as kubeconfig,
        shell(
            "--kubeconfig", kubeconfig, "--write", target, "--fault", "verb=list times=1 code=503"
        ) as proxy,
    ):
        assert proxy.kubeconfig == target
        assert [fetch(target), fetch(target)] == [503, 201]
        assert proxy.tell("add resource=/version code=401") == "ok"
        assert [fetch(target, "/version"), fetch(target)] == [401, 201]
        assert proxy.tell("clear") == "ok"
        assert fetch(target, "/version") == 201
        assert proxy.tell("away") == "ok"
        assert fetch(target) == 0
        assert proxy.tell("back") == "ok"
        assert fetch(target) == 201
        for line in ("freeze", "thaw", "away 0.1", "clear"):
            assert proxy.tell(line) == "ok"
        assert [proxy.tell("cut"), proxy.tell("expire")] == ["ok 0", "ok 0"]
        assert {proxy.tell("calls"), proxy.said()} == {"2 get /version", "4 list pods"}
        proxy.process.send_signal(signal.SIGTERM)
        assert proxy.process.wait(PATIENCE) == 0
        assert proxy.process.stderr is not None
        assert proxy.process.stderr.read() == ""
        assert not target.exists()


def test_a_line_that_cannot_be_obeyed_is_told_and_the_proxy_goes_on(tmp_path: Path) -> None:
    kubeconfig = a_kubeconfig(tmp_path, "http://127.0.0.1:1")
    bad = ["frieze", "freeze now", "away soon", "add verb=crate code=1", "add"]
    with shell("--kubeconfig", kubeconfig) as proxy:
        assert proxy.process.stdin is not None
        proxy.process.stdin.write("\n".join(bad) + "\n")
        assert proxy.tell("thaw") == "ok"
        proxy.process.stdin.close()
        proxy.process.send_signal(signal.SIGINT)
        assert proxy.process.wait(PATIENCE) == 0
        assert proxy.process.stderr is not None
        told = proxy.process.stderr.read().splitlines()
    words = ["'frieze'", "'freeze now'", "away soon", "verb=crate", "it has no effect"]
    assert len(told) == len(words)
    assert all(word in line for word, line in zip(words, told, strict=True))
    assert not proxy.kubeconfig.exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--kubeconfig", "{folder}/none"], "none"),
        (["--kubeconfig", "{good}", "--port", "{taken}"], "port {taken}"),
        (["--kubeconfig", "{good}", "--port", "70000"], "port 70000"),
        (["--kubeconfig", "{good}", "--fault", "verb=crate code=503"], "verb=crate"),
        (["--kubeconfig", "{good}", "--write", "{good}"], "{good}"),
        (["--kubeconfig", "{good}", "--write", "{folder}/no/where"], "{folder}/no/where"),
    ],
)
def test_what_cannot_start_is_one_line_and_exit_code_2(
    tmp_path: Path, words: list[str], told: str
) -> None:
    good = a_kubeconfig(tmp_path, "http://127.0.0.1:1")
    before = good.read_text()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        names = {"good": good, "folder": tmp_path, "taken": taken.getsockname()[1]}
        done = subprocess.run(
            command(*(word.format(**names) for word in words)),
            capture_output=True,
            text=True,
            env={"TMPDIR": str(tmp_path), "PATH": ""},
            timeout=PATIENCE,
        )
    assert (done.returncode, done.stdout) == (2, "")
    [line] = done.stderr.splitlines()
    assert told.format(**names) in line
    assert (list(tmp_path.iterdir()), good.read_text()) == ([good], before)


def test_help_shows_the_grammar() -> None:
    done = subprocess.run(command("--help"), capture_output=True, text=True, timeout=PATIENCE)
    rules = [field for field in Fault.__dataclass_fields__ if field not in ("seen", "hits")]
    assert all(f"{name}=" in done.stdout for name in rules)
    assert all(name in done.stdout for name in ("freeze", "thaw", "away", "back", "expire"))
