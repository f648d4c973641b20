"""Sends all calls to a cluster, in an event loop: that of a trigger or of a waiting worker.

Clients are shared, one for each connection and cluster in each event loop: creating one costs a
request to the secrets backend and a TLS context. They close with their loop.

A connection may be edited while jobs run, and then lead to another cluster. So a hook can be bound
to one cluster, by its fingerprint. It continues with the client that it has. If it needs a new one
and the connection leads elsewhere, it raises OtherCluster.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlencode

from msgspec import MsgspecError

from airflow_kftrain import stats
from airflow_kftrain.errors import ClusterError
from airflow_kftrain.hooks import api_calls, credentials, operations
from airflow_kftrain.hooks.answers import (
    Answer,
    Body,
    Lines,
    check,
    is_for_nobody,
    no_api_server,
    read_event,
    read_item,
    read_page,
    unreachable,
)
from airflow_kftrain.hooks.api_calls import POD, AnyKind, Call, LogQuery, OtherKind
from airflow_kftrain.hooks.operations import Objects, Outside
from airflow_kftrain.hooks.proxies import proxy_of
from airflow_kftrain.job_state import read_mapping, read_text
from airflow_kftrain.kinds import JobKind
from airflow_kftrain.loops import finished
from airflow_kftrain.monitoring.queues import UID_LABEL

T = TypeVar("T")

_LARGE = 1 << 20
"""Bytes; aiohttp warns if it has to write so much in one piece."""
_LAST_TURNS = 0.1
_READ_AGAIN_SECONDS = 20.0
"""Minimum time between two reads of a connection that leads to another cluster than the job's."""
_SLICE = 0.004
"""Seconds of reading after which other tasks of the loop get a turn."""


class AsyncTrainingJobHook:
    """The jobs of one cluster. All methods raise ClusterError."""

    def __init__(self, connection: str | None, cluster: str = "") -> None:
        """Nothing is read or sent before the first call. A `connection` of None means the default
        kubeconfig, or the pod's own ServiceAccount. `cluster` is a fingerprint, or "" for the
        cluster that the connection leads to."""
        self.connection = connection
        self.cluster = cluster
        self._key = _Key(connection, cluster)
        self._outside = Outside(self._send)

    async def connect(self) -> None:
        """Creates a client if there is none yet. Sends nothing."""
        await self._client()

    async def elsewhere(self) -> AsyncTrainingJobHook | None:
        """A hook for the cluster that the connection leads to now; None if that is our own. Reads
        the connection again, but not every time."""
        client = await _clients().current(self._key)
        if client is None:
            return None
        return AsyncTrainingJobHook(self.connection, client.cluster)

    async def move(self, other: AsyncTrainingJobHook) -> None:
        """The cluster of the other hook is our own, under a new address or with a new certificate
        authority: all hooks for it continue there."""
        await _clients().move(self._key, other._key)

    async def fingerprint(self) -> str:
        """The fingerprint of the cluster that the credentials lead to. Sends nothing."""
        return (await self._client()).cluster

    async def server(self) -> str:
        """The address that the credentials lead to. Sends nothing."""
        return (await self._client()).server

    async def source(self) -> str:
        """Says where the credentials come from."""
        return credentials.described((await self._client()).extras)

    async def mpi_version(self) -> str:
        """Which version of MPIJob the cluster serves: "v2beta1" or "v1". Raises NotServed."""
        return await operations.mpi_version(self._outside)

    async def namespace(self) -> str:
        """The namespace of jobs whose author sets none."""
        return credentials.choose_namespace((await self._client()).extras)

    async def submit(self, kind: JobKind, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """The job that this call has created, or an earlier call for the same owner."""
        return await operations.submit(kind, manifest, self._outside)

    async def get(self, kind: JobKind, namespace: str, name: str) -> dict[str, Any] | None:
        return await operations.find(api_calls.get_job(kind, namespace, name), self._outside)

    async def list(
        self, kind: JobKind, namespace: str, selector: str = ""
    ) -> AsyncIterator[dict[str, Any]]:
        """Reads page by page, as items are needed."""
        _, items = await self.snapshot(kind, namespace, selector)
        async for item in items:
            yield item

    async def snapshot(
        self,
        kind: AnyKind | str,
        namespace: str,
        selector: str = "",
        field_selector: str = "",
    ) -> tuple[str, AsyncIterator[dict[str, Any]]]:
        """The version from which a watch continues, and all objects at that version. Iterating may
        raise Expired. `kind` may be "pods"."""
        found = POD if isinstance(kind, str) else kind
        pages = _Pages(self, found, namespace, selector, field_selector)
        await pages.fetch()
        return pages.resource_version, pages.items()

    def watch(
        self,
        kind: JobKind,
        namespace: str,
        selector: str,
        resource_version: str,
        seconds: float,
        field_selector: str = "",
    ) -> AsyncGenerator[tuple[str, dict[str, Any]], None]:
        """The events after that version: ADDED, MODIFIED, DELETED, and now and then BOOKMARK, whose
        object has only a version. Ends after so many seconds. Raises Expired if the server has
        forgotten the version. Use contextlib.aclosing to leave it early."""
        call = api_calls.watch(kind, namespace, selector, field_selector, resource_version, seconds)
        return self._events_of(call, seconds)

    def watch_pods(
        self,
        namespace: str,
        selector: str,
        field_selector: str,
        resource_version: str,
        seconds: float,
    ) -> AsyncGenerator[tuple[str, dict[str, Any]], None]:
        """Like `watch`. A pod that leaves the selection is DELETED."""
        call = api_calls.watch(POD, namespace, selector, field_selector, resource_version, seconds)
        return self._events_of(call, seconds)

    async def patch(
        self, kind: JobKind, namespace: str, name: str, patch: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Sends a merge patch. If it contains `metadata.resourceVersion`, a job that has changed
        raises Conflict."""
        call = api_calls.patch_job(kind, namespace, name, patch)
        return await operations.ask(call, self._outside)

    async def delete(
        self,
        kind: JobKind,
        namespace: str,
        name: str,
        *,
        uid: str,
        resource_version: str | None = None,
        foreground: bool = False,
    ) -> bool:
        """Returns False if that job is gone already. Raises Conflict if it has another version by
        now."""
        get = api_calls.get_job(kind, namespace, name)
        call = api_calls.delete_job(
            kind,
            namespace,
            name,
            uid=uid,
            resource_version=resource_version,
            foreground=foreground,
        )
        return await operations.delete(call, get, uid, self._outside)

    async def pods(self, kind: JobKind, namespace: str, name: str) -> Objects:
        """The pods of a job, at most a thousand."""
        return await operations.pods(kind, namespace, name, self._outside)

    async def events(self, namespace: str, about: Sequence[str]) -> Objects:
        """The events of the first few of these uids or names, oldest first; none if that is
        forbidden."""
        return await operations.events(namespace, about, self._outside)

    async def workload_kind(self) -> OtherKind:
        """Kueue's Workload, in a version that the cluster serves. Raises NotServed."""
        return await operations.workload_kind(self._outside)

    async def workloads(self, kind: OtherKind, namespace: str, uids: Sequence[str]) -> Objects:
        """Kueue's Workloads of the jobs with these uids, at most 50: they are in the address of the
        call."""
        selector = f"{UID_LABEL} in ({','.join(uids)})"
        _, items = await self.snapshot(kind, namespace, selector)
        return [item async for item in items]

    async def log(
        self,
        namespace: str,
        pod: str,
        container: str,
        *,
        previous: bool = False,
        tail_lines: int | None = None,
        limit_bytes: int | None = None,
        since: datetime | None = None,
        timestamps: bool = False,
    ) -> str:
        """`limit_bytes` keeps the beginning, or with `tail_lines` the end."""
        asked = LogQuery(
            namespace, pod, container, previous, tail_lines, limit_bytes, since, timestamps
        )
        return await operations.ask_for_text(api_calls.read_log(asked), self._outside)

    async def follow_log(
        self,
        namespace: str,
        pod: str,
        container: str,
        *,
        since: datetime | None = None,
        tail_lines: int | None = None,
        timestamps: bool = False,
    ) -> AsyncIterator[str]:
        """Yields each line when it is written, until the container ends."""
        asked = LogQuery(
            namespace,
            pod,
            container,
            tail_lines=tail_lines,
            since=since,
            timestamps=timestamps,
            follow=True,
        )
        stream = self._lines_of(api_calls.read_log(asked), None, credentials.LONGEST_LOG_LINE)
        async with contextlib.aclosing(stream):
            async for line in stream:
                yield line.decode("utf-8", "replace")

    async def ask(self, call: Call) -> dict[str, Any]:
        """The answer to one call of api_calls."""
        return await operations.ask(call, self._outside)

    async def answer(self, call: Call) -> Answer:
        """The response, unread."""
        return await operations.answer(call, self._outside)

    async def _send(self, call: Call) -> Answer:
        async with self._open(call, credentials.ANSWER_SECONDS) as (response, client):
            return await self._read(call, response, client)

    async def _events_of(
        self, call: Call, seconds: float
    ) -> AsyncGenerator[tuple[str, dict[str, Any]], None]:
        most = max(seconds, 1) + credentials.WATCH_GRACE
        server = (await self._client()).server
        stream = self._lines_of(call, most, credentials.LONGEST_EVENT)
        async with contextlib.aclosing(stream):
            async for line in stream:
                yield read_event(call, line, server)

    async def _lines_of(
        self, call: Call, seconds: float | None, longest: int
    ) -> AsyncGenerator[bytes, None]:
        lines = Lines(longest)
        async with self._open(call, seconds) as (response, client):
            if response.status >= 300:
                check(call, await self._read(call, response, client))
            async for piece in response.content.iter_any():
                for line in lines.feed(piece):
                    yield line
            for line in lines.rest():
                yield line

    @contextlib.asynccontextmanager
    async def _open(self, call: Call, seconds: float | None) -> AsyncIterator[tuple[Any, _Client]]:
        """The response, when its headers have arrived, and the client that sent the request. If the
        credentials are rejected, they are read again, once."""
        from aiohttp import ClientError

        client = await self._client()
        try:
            response = await self._request(client, call, seconds)
            if response.status == 401:
                response.close()
                client = await _clients().renewed(self._key, client)
                response = await self._request(client, call, seconds)
            async with response:
                yield response, client
        except (ClientError, asyncio.TimeoutError, OSError) as error:
            raise unreachable(call, client.server, error) from error

    async def _request(self, client: _Client, call: Call, seconds: float | None) -> Any:
        from aiohttp import ClientError

        try:
            response = await client.request(call, seconds)
        except (ClientError, asyncio.TimeoutError, OSError):
            stats.api_called(call.verb, None)
            raise
        except ValueError:  # the error may quote the token
            raise credentials.unsendable(self.connection) from None
        stats.api_called(call.verb, response.status)
        return response

    async def _read(self, call: Call, response: Any, client: _Client) -> Answer:
        body = Body(call)
        async for piece in response.content.iter_any():
            body.feed(piece)
        headers = {name.lower(): value for name, value in response.headers.items()}
        answer = Answer(response.status, headers, body.text(), client.server)
        if is_for_nobody(answer):
            _clients().forget(client)
        return answer

    async def _client(self) -> _Client:
        return await _clients().get(self._key)


class _Pages:
    """A list, read page by page."""

    def __init__(
        self,
        hook: AsyncTrainingJobHook,
        kind: AnyKind,
        namespace: str,
        selector: str,
        field_selector: str,
    ) -> None:
        self._hook = hook
        self._selection = (kind, namespace, selector, field_selector)
        self._limit = operations.FIRST_PAGE
        self._token = ""
        self._page: Sequence[dict[str, Any]] = ()
        self.resource_version = ""

    async def fetch(self) -> None:
        call = api_calls.list_page(*self._selection, limit=self._limit, token=self._token)
        answer = await self._hook.answer(call)
        try:
            listed = read_page(answer.text)
            items = _in_slices(map(read_item, listed.items or ()))
            page = [item async for item in items if isinstance(item, dict)]
        except (ValueError, MsgspecError) as error:
            raise no_api_server(call, answer.server) from error
        metadata = read_mapping(listed.metadata)
        self._page = page
        self._token = read_text(metadata.get("continue"))
        self._limit = operations.next_limit(answer, len(page))
        self.resource_version = self.resource_version or read_text(metadata.get("resourceVersion"))

    async def items(self) -> AsyncIterator[dict[str, Any]]:
        while True:
            # The time that the caller needs for an item counts, too.
            async for item in _in_slices(iter(self._page)):
                yield item
            if not self._token:
                return
            await self.fetch()


class _Client:
    """A session with the credentials of a connection. It closes when nothing refers to it."""

    def __init__(
        self,
        keeper: Any,
        api_client: Any,
        extras: Mapping[str, Any],
        proxy: str,
        connection: str | None,
    ) -> None:
        self._keeper = keeper
        self._api = api_client
        # kubernetes_asyncio 30 does not read it.
        self._proxy = proxy or getattr(api_client.rest_client, "proxy", None)
        self._insecure = credentials.is_on(extras, "disable_verify_ssl")
        self.extras = extras
        host = api_client.configuration.host
        self.cluster = credentials.fingerprint(api_client.configuration)
        self.server = credentials.shown_server(host, connection, self._proxy)

    async def request(self, call: Call, seconds: float | None) -> Any:
        from aiohttp import ClientTimeout

        headers = credentials.request_headers(call.content_type)
        waits = self._api.update_params_for_auth(headers, [], ["BearerToken"])
        if waits is not None:  # kubernetes_asyncio 30 does not await
            await waits
        rest = self._api.rest_client
        options = {
            "proxy": self._proxy,
            "proxy_headers": getattr(rest, "proxy_headers", None),
            "server_hostname": getattr(rest, "server_hostname", None),
            "ssl": False if self._insecure else None,
        }
        query = f"?{urlencode(call.query)}" if call.query else ""
        return await rest.pool_manager.request(
            call.method,
            self._api.configuration.host.rstrip("/") + call.path + query,
            data=_body(call),
            headers=headers,
            allow_redirects=False,
            timeout=ClientTimeout(total=seconds, sock_connect=credentials.CONNECT_SECONDS),
            **{name: value for name, value in options.items() if value is not None},
        )


class _Key(NamedTuple):
    connection: str | None
    cluster: str


class _Clients:
    """The clients of one event loop, by connection and cluster."""

    def __init__(self) -> None:
        self._held: dict[_Key, _Client] = {}
        self._newest: dict[str | None, _Client] = {}
        self._read_again: dict[_Key, float] = {}
        """Until when not to read a connection again that leads to another cluster than this one."""
        self._locks: dict[str | None, asyncio.Lock] = {}

    async def get(self, key: _Key) -> _Client:
        if key not in self._held:
            async with self._lock(key):
                await self._find(key)
        return self._held[key]

    async def current(self, key: _Key) -> _Client | None:
        """The client for the cluster that the connection leads to now; None if that is the cluster
        of the key."""
        async with self._lock(key):
            old = self._held.get(key)
            found = await self._read_now_and_then(key)
            if not self._fits(key, found):
                return found
            self._put(key, old, found)
            return None

    async def move(self, key: _Key, other: _Key) -> None:
        self._held[key] = await self.get(other)

    async def renewed(self, key: _Key, old: _Client) -> _Client:
        """A client with new credentials instead of `old`, unless another call has renewed it in the
        meantime. If the connection leads elsewhere, `old` stays: its cluster may accept it
        again."""
        async with self._lock(key):
            held = self._held.get(key)
            if held is not None and held is not old:
                return held
            found = await self._read(key)
            if not self._fits(key, found):
                raise credentials.other_cluster(key.connection, key.cluster, found.cluster)
            self._put(key, old, found)
            return found

    def forget(self, old: _Client) -> None:
        """The next call reads the credentials again."""
        self._held = {key: client for key, client in self._held.items() if client is not old}
        self._newest = {key: client for key, client in self._newest.items() if client is not old}

    def _lock(self, key: _Key) -> asyncio.Lock:
        return self._locks.setdefault(key.connection, asyncio.Lock())

    async def _find(self, key: _Key) -> None:
        if key in self._held:  # another call has found it
            return
        newest = self._newest.get(key.connection)
        if newest is None or not self._fits(key, newest):
            newest = await self._read_now_and_then(key)
        if not self._fits(key, newest):
            raise credentials.other_cluster(key.connection, key.cluster, newest.cluster)
        self._held[key] = newest

    def _fits(self, key: _Key, client: _Client) -> bool:
        """Whether a client leads to the cluster of the key, even if that has moved."""
        held = self._held.get(key)
        moved = held is not None and held.cluster == client.cluster
        return moved or key.cluster in ("", client.cluster)

    async def _read_now_and_then(self, key: _Key) -> _Client:
        now = asyncio.get_running_loop().time()
        newest = self._newest.get(key.connection)
        if newest is None or now >= self._read_again.get(key, 0.0):
            newest = await self._read(key)
            self._read_again[key] = now + _READ_AGAIN_SECONDS
        return newest

    async def _read(self, key: _Key) -> _Client:
        client = await _connect(key.connection)
        self._newest[key.connection] = client
        self._held[_Key(key.connection, client.cluster)] = client
        return client

    def _put(self, key: _Key, old: _Client | None, new: _Client) -> None:
        """Replaces `old` under all its keys."""
        keys = [each for each, client in self._held.items() if client is old]
        self._held |= dict.fromkeys([key, *keys], new)


_OF_LOOPS: dict[asyncio.AbstractEventLoop, _Clients] = {}


def _clients() -> _Clients:
    """The clients of the running loop."""
    loop = asyncio.get_running_loop()
    if loop not in _OF_LOOPS:
        for ended in [each for each in _OF_LOOPS if each.is_closed()]:
            _OF_LOOPS.pop(ended, None)
        _OF_LOOPS[loop] = _Clients()
    return _OF_LOOPS[loop]


async def _connect(connection: str | None) -> _Client:
    try:
        # Not in the loop: it takes a third of a second.
        hook_class = await asyncio.to_thread(_cncf_hook_class)
        await asyncio.to_thread(stats.prepare)
        hook = hook_class(conn_id=connection)
        hook.conn_id = connection  # otherwise None would become the connection kubernetes_default
        extras = await finished(hook.get_conn_extras())
        if isinstance(extras.get("kube_config"), dict):
            # The dict belongs to the hook. The oldest cncf-kubernetes accepts only a string.
            extras["kube_config"] = json.dumps(extras["kube_config"])
        if credentials.names_no_cluster(extras) and credentials.is_in_pod():
            hook.in_cluster = True  # as the synchronous hook does
        # An asynchronous generator. It closes its client when nothing refers to it, at the latest
        # when the loop ends.
        keeper, last_turns = hook.get_conn(), _last_turns()
        await last_turns.__anext__()
        api_client = await keeper.__aenter__()
        credentials.check_address(api_client.configuration.host, connection)
        # Not in a thread: if this call were cancelled, a client would be left that nothing refers
        # to.
        proxy = proxy_of(extras, connection)
        return _Client((keeper, last_turns), api_client, extras, proxy, connection)
    except ClusterError:
        raise
    except Exception as error:
        raise credentials.bad_connection(connection, error) from error


async def _last_turns() -> AsyncIterator[None]:
    """A loop that ends waits for its generators, so it waits for this one: TLS connections need a
    moment longer than their client to close."""
    try:
        yield
    finally:
        await asyncio.sleep(_LAST_TURNS)


def _cncf_hook_class() -> Any:
    from airflow.providers.cncf.kubernetes.hooks.kubernetes import AsyncKubernetesHook

    return AsyncKubernetesHook


def _body(call: Call) -> bytes | io.BytesIO | None:
    if call.body is None:
        return None
    body = json.dumps(call.body).encode()
    return body if len(body) < _LARGE else io.BytesIO(body)


async def _in_slices(work: Iterator[T]) -> AsyncIterator[T]:
    """Yields the items of `work`, and gives other tasks of the loop a turn now and then."""
    began = time.monotonic()
    for each in work:
        yield each
        if time.monotonic() - began > _SLICE:
            await asyncio.sleep(0)
            began = time.monotonic()
