"""The proxy in front of an API server: passes calls on, and injects the faults that it is told to.

Clients reach it with the kubeconfig that it writes: loopback, and a secret in the path. It calls
the server with the credentials of the kubeconfig that it was given, so whoever knows the secret can
use them.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hmac
import json
import logging
import math
import os
import secrets
import socket
import ssl
import struct
import tempfile
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

import aiohttp
import yaml
from aiohttp import web
from aiohttp.connector import Connection
from yarl import URL

from kftrain_local.api_client import read_kubeconfig
from kftrain_local.errors import LocalError
from kftrain_local.faults.rules import Call, Fault, call_of, status

log = logging.getLogger(__name__)

_P = ParamSpec("_P")
_R = TypeVar("_R")

_HOST = "127.0.0.1"
_LONGEST_LINE = 1 << 20  # of the head of a request, as the API server accepts it
_HOP_BY_HOP = "connection keep-alive proxy-authenticate proxy-authorization te trailer"
_NOT_PASSED_ON = {*_HOP_BY_HOP.split(), "transfer-encoding", "upgrade"}
_OUR_OWN = {"host", "authorization", "expect"}
_EXPIRED = json.dumps({"type": "ERROR", "object": status(410, 0)}).encode() + b"\n"


class CannotProxy(LocalError):
    """The port is in use, or the kubeconfig cannot be written."""


class _Exchange(NamedTuple):
    """A call and the client that waits for the answer."""

    call: Call
    request: web.Request
    target: str
    expired: asyncio.Future[None]


class _Connector(aiohttp.TCPConnector):
    """Keeps no connections: one could die while it is unused, and that would be a fault of the
    proxy itself."""

    def __init__(self, tls: ssl.SSLContext | None) -> None:
        super().__init__(ssl=tls or True, limit=0, force_close=True)
        self._made: weakref.WeakSet[asyncio.Transport] = weakref.WeakSet()

    async def connect(self, *args: Any, **kwargs: Any) -> Connection:
        connection = await super().connect(*args, **kwargs)
        if connection.transport is not None:
            self._made.add(connection.transport)
        return connection

    def abort(self) -> None:
        """Aborts closed connections, too: TLS waits for the server to agree, longer than the loop
        may live."""
        for transport in self._made:
            transport.abort()


def _from_any_thread(
    method: Callable[Concatenate[FaultProxy, _P], _R],
) -> Callable[Concatenate[FaultProxy, _P], _R]:
    """Makes a method callable from any thread; it has taken effect when the call returns."""

    @functools.wraps(method)
    def call(proxy: FaultProxy, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        async def work() -> _R:
            return method(proxy, *args, **kwargs)

        if threading.get_ident() == proxy._thread:
            return method(proxy, *args, **kwargs)
        return asyncio.run_coroutine_threadsafe(work(), proxy._loop).result()

    return call


class FaultProxy:
    """`async with FaultProxy(kubeconfig, Fault(...)) as proxy:`; clients use `proxy.kubeconfig`.

    `proxy.calls["create", "pods"]` counts these calls.
    """

    def __init__(
        self, kubeconfig: str | Path, *faults: Fault, write: str | Path = "", port: int = 0
    ) -> None:
        """`write`: a file for its kubeconfig, which must not exist; otherwise a temporary one."""
        self.calls: Counter[tuple[str, str]] = Counter()
        self._source = Path(kubeconfig).expanduser()
        self._write = write
        self._port = port
        self._faults = list(faults)
        self._secret = secrets.token_hex(16)
        self._open: list[_Exchange] = []
        self._listening = False
        self._return: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> FaultProxy:
        """Raises BadKubeconfig or CannotProxy, with nothing left behind."""
        self._upstream = read_kubeconfig(self._source)
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        self._thawed = asyncio.Event()
        self._thawed.set()
        async with contextlib.AsyncExitStack() as undo:
            self._socket = undo.enter_context(_bound(self._port))
            port = self._socket.getsockname()[1]
            self._hosts = (f"{_HOST}:{port}", f"localhost:{port}")
            connector = _Connector(self._upstream.tls)
            undo.callback(connector.abort)
            self._session = await undo.enter_async_context(_new_session(connector))
            app = web.Application()
            app.router.add_route("*", "/{path:.*}", self._handle)
            self._runner = web.AppRunner(
                app,
                access_log=None,
                handler_cancellation=True,
                auto_decompress=False,
                max_line_size=_LONGEST_LINE,
                max_field_size=_LONGEST_LINE,
            )
            await self._runner.setup()
            undo.push_async_callback(self._runner.cleanup)
            self.back()
            undo.callback(self.away)
            server = f"http://{_HOST}:{port}/{self._secret}"
            self.kubeconfig = undo.enter_context(_kubeconfig(self._source, server, self._write))
            self._undo = undo.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._undo.aclose()

    @_from_any_thread
    def add(self, fault: Fault) -> Fault:
        self._faults.append(fault)
        return fault

    @_from_any_thread
    def remove(self, fault: Fault) -> None:
        self._faults.remove(fault)

    @_from_any_thread
    def clear(self) -> None:
        """Removes all faults, and ends `freeze` and `away`."""
        self._faults.clear()
        self._thawed.set()
        self.back()

    @_from_any_thread
    def freeze(self) -> None:
        """Connections are accepted, but nothing is answered; open watches receive nothing."""
        self._thawed.clear()

    @_from_any_thread
    def thaw(self) -> None:
        self._thawed.set()

    @_from_any_thread
    def away(self, seconds: float = math.inf) -> None:
        """The port refuses connections, and open ones are reset, until `back()` or for so many
        seconds."""
        if self._return is not None:
            self._return.cancel()
        if self._listening:
            self._listening = False
            self._loop.remove_reader(self._socket)
            self._socket.shutdown(socket.SHUT_RDWR)
            # The port stays bound: no other program may get it and receive the secret.
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
        assert self._runner.server is not None
        for connection in self._runner.server.connections:
            _reset(connection.transport)
        if seconds < math.inf:
            self._return = self._loop.call_later(seconds, self.back)

    @_from_any_thread
    def back(self) -> None:
        if self._return is not None:
            self._return.cancel()
        if not self._listening:
            self._listening = True
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.listen(128)
            self._loop.add_reader(self._socket, self._accept)

    @_from_any_thread
    def cut(self) -> int:
        """Closes the connections of all open watches without a proper end. Returns how many there
        were."""
        return len([_close(watch.request) for watch in self._watches()])

    @_from_any_thread
    def expire(self) -> int:
        """Ends all open watches with an ERROR event, code 410, as the server does. Returns how many
        there were."""
        watches = [watch for watch in self._watches() if not watch.expired.done()]
        for watch in watches:
            watch.expired.set_result(None)
        return len(watches)

    def _watches(self) -> list[_Exchange]:
        return [exchange for exchange in self._open if exchange.call.verb == "watch"]

    def _accept(self) -> None:
        assert self._runner.server is not None
        with contextlib.suppress(OSError):  # the client has left already
            connection, _ = self._socket.accept()
            connecting = self._loop.connect_accepted_socket(self._runner.server, connection)
            self._loop.create_task(connecting)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        secret, _, target = request.raw_path[1:].partition("/")
        known = hmac.compare_digest(secret.encode(errors="replace"), self._secret.encode())
        # The Host reveals a web page whose host name was made to lead here.
        if request.headers.get("Host") not in self._hosts or not known:
            return web.Response(status=403, text="use the kubeconfig that the fault proxy wrote\n")
        call = call_of(request.method, "/" + target.partition("?")[0], request.query)
        self.calls[call] += 1
        try:
            return await self._answer(_Exchange(call, request, target, self._loop.create_future()))
        except (aiohttp.ClientError, OSError) as error:
            if request.transport is not None and not request.transport.is_closing():
                log.warning("%s: %s %s", self._source, type(error).__name__, error)
            await self._thawed.wait()
            return _close(request)

    async def _answer(self, exchange: _Exchange) -> web.StreamResponse:
        if not self._listening:  # accepted just before `away`
            return _close(exchange.request)
        hits = [fault for fault in self._faults if fault.strikes(exchange.call)]
        await asyncio.sleep(sum(fault.delay for fault in hits))
        await self._thawed.wait()
        for fault in hits:
            if fault.code:
                return _refusal(fault, exchange.call)
        return await self._pass_on(exchange, min((fault.cut for fault in hits), default=math.inf))

    async def _pass_on(self, exchange: _Exchange, cut: float) -> web.StreamResponse:
        request, upstream = exchange.request, self._upstream
        headers = _end_to_end(request.headers, _OUR_OWN)
        if upstream.token:
            headers.append(("Authorization", f"Bearer {upstream.token}"))
        async with contextlib.AsyncExitStack() as undo:
            answer = await undo.enter_async_context(
                self._session.request(
                    request.method,
                    URL(f"{upstream.server}/{exchange.target}", encoded=True),
                    headers=headers,
                    data=request.content if request.body_exists else None,
                    allow_redirects=False,
                )
            )
            await self._thawed.wait()
            if cut == 0:
                return _close(request)
            if cut < math.inf:
                undo.callback(self._loop.call_later(cut, _close, request).cancel)
            response = web.StreamResponse(
                status=answer.status, reason=answer.reason, headers=_end_to_end(answer.headers)
            )
            await response.prepare(request)
            self._open.append(exchange)
            undo.callback(self._open.remove, exchange)
            await self._stream(exchange, answer, response)
            return response

    async def _stream(
        self, exchange: _Exchange, answer: aiohttp.ClientResponse, response: web.StreamResponse
    ) -> None:
        """Passes on every piece as it arrives, until the answer ends, or has to expire between two
        events."""
        expired, torn = exchange.expired, False
        while torn or not expired.done():
            reading = asyncio.ensure_future(answer.content.readany())
            try:
                either: list[asyncio.Future[Any]] = [reading] if torn else [reading, expired]
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                if not reading.done():
                    break
            finally:
                reading.cancel()
            piece = reading.result()
            await self._thawed.wait()
            if not piece:
                return
            if torn and expired.done() and b"\n" in piece:
                piece = piece[: piece.index(b"\n") + 1]
            await response.write(piece)
            torn = not piece.endswith(b"\n")
        await self._thawed.wait()
        if answer.content_type == "application/json":
            await response.write(_EXPIRED)
        else:
            _close(exchange.request)


@contextlib.contextmanager
def running(proxy: FaultProxy) -> Iterator[FaultProxy]:
    """Runs the proxy in a thread of its own, for code that is not asynchronous."""
    ready: Future[None] = Future()
    stop: Future[None] = Future()

    async def live() -> None:
        async with proxy:
            ready.set_result(None)
            await asyncio.wrap_future(stop)

    with ThreadPoolExecutor(1) as pool:
        lived: Future[None] = pool.submit(asyncio.run, live())
        try:
            wait([ready, lived], return_when=FIRST_COMPLETED)
            if not ready.done():
                lived.result()
            yield proxy
        finally:
            stop.set_result(None)
        lived.result()


def _new_session(connector: _Connector) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None),
        auto_decompress=False,
        skip_auto_headers=("Accept", "Accept-Encoding", "Content-Type", "User-Agent"),
    )


def _bound(port: int) -> socket.socket:
    """A socket that keeps its port even while it does not listen. Raises CannotProxy."""
    kept = socket.socket()
    try:
        with socket.socket() as any_port:
            for each in (any_port, kept):
                each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            any_port.bind((_HOST, port))
            # On Linux a socket that has requested this port keeps it.
            kept.bind(any_port.getsockname())
    except (OSError, OverflowError) as error:
        kept.close()
        raise CannotProxy(f"port {port} on {_HOST} cannot be used: {error}") from error
    kept.setblocking(False)
    return kept


@contextlib.contextmanager
def _kubeconfig(source: Path, server: str, target: str | Path) -> Iterator[Path]:
    """The current context under its own names, but with this server and without credentials."""
    config = yaml.safe_load(source.read_text())
    current = config["current-context"]
    context = next(each["context"] for each in config["contexts"] if each["name"] == current)
    ours = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": current,
        "contexts": [{"name": current, "context": context}],
        "clusters": [{"name": context["cluster"], "cluster": {"server": server}}],
        "users": [{"name": context["user"], "user": {}}],
    }
    temporary = f"{tempfile.gettempdir()}/kubeconfig-{secrets.token_hex(8)}"
    path = Path(target or temporary).expanduser().absolute()
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise CannotProxy(f"cannot write a kubeconfig: {error}") from error
    try:
        with open(file, "w") as stream:
            yaml.safe_dump(ours, stream)
        yield path
    finally:
        path.unlink(missing_ok=True)


def _end_to_end(headers: Mapping[str, str], others: Iterable[str] = ()) -> list[tuple[str, str]]:
    """The headers without those for the next hop only, and without these."""
    named = headers.get("Connection", "").lower().replace(",", " ").split()
    left_out = {*_NOT_PASSED_ON, *named, *others}
    return [(name, value) for name, value in headers.items() if name.lower() not in left_out]


def _refusal(fault: Fault, call: Call) -> web.Response:
    if call.verb == "watch" and fault.code == 410:
        return web.Response(body=_EXPIRED, content_type="application/json")
    return web.json_response(
        status(fault.code, fault.retry_after),
        status=fault.code,
        headers={"Retry-After": str(fault.retry_after)} if fault.code == 429 else {},
    )


def _close(request: web.Request) -> web.Response:
    """Closes the connection; the returned response is never sent."""
    if request.transport is not None:
        request.transport.close()
    return web.Response()


def _reset(transport: asyncio.Transport | None) -> None:
    if transport is not None:
        # Otherwise the peer could see a proper end.
        at_once = struct.pack("ii", 1, 0)
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)
        transport.abort()
