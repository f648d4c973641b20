"""The hook of triggers, and of workers that wait in an event loop.

Clients are shared: one for each connection in each event loop, since making one costs a connection
to the secrets backend and a TLS context. They close with their loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar
from urllib.parse import urlencode

from airflow_kftrain.errors import ClusterError
from airflow_kftrain.hooks import api_calls, credentials, talks
from airflow_kftrain.hooks.answers import (
    Answer,
    Body,
    Lines,
    check,
    is_for_nobody,
    no_api_server,
    parse_list,
    read_event,
    unreachable,
)
from airflow_kftrain.hooks.api_calls import POD, AnyKind, Call, LogQuery
from airflow_kftrain.hooks.talks import Objects, Outside, Pause, Talk
from airflow_kftrain.job_state import read_mapping, read_text
from airflow_kftrain.kinds import JobKind

T = TypeVar("T")

_log = logging.getLogger(__name__)

_LARGE = 1 << 20
"""Bytes that aiohttp would not write in one go."""
_LAST_TURNS = 0.1
_SLICE = 0.004
"""Seconds of reading after which the others in the loop get their turn."""


class AsyncTrainingJobHook:
    """Jobs of one cluster. All its methods raise ClusterError."""

    def __init__(self, connection: str | None) -> None:
        """Nothing is read or sent before the first call. None: the default kubeconfig, or the
        pod's own account."""
        self.connection = connection
        self._outside = Outside()

    async def namespace(self) -> str:
        """Where jobs go whose author names no namespace."""
        return credentials.choose_namespace((await self._client()).extras)

    async def submit(self, kind: JobKind, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """The job as created, or as an earlier call for the same owner created it."""
        return await self.talk(talks.submit(kind, manifest, self._outside))

    async def get(self, kind: JobKind, namespace: str, name: str) -> dict[str, Any] | None:
        return await self.talk(talks.find(api_calls.get_job(kind, namespace, name), self._outside))

    async def list(
        self, kind: JobKind, namespace: str, selector: str = ""
    ) -> AsyncIterator[dict[str, Any]]:
        """In pages, which are fetched as they are needed."""
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
        """The version from which a watch goes on, and all there is at that version. Reading on may
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
        """What happens from that version on: ADDED, MODIFIED, DELETED, and now and then BOOKMARK,
        whose object has only a version. Ends after so many seconds; raises Expired if the server
        has forgotten the version. Close it (contextlib.aclosing) if it is left before."""
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
        """As `watch`. Of a pod that leaves the selection it is told that it was DELETED."""
        call = api_calls.watch(POD, namespace, selector, field_selector, resource_version, seconds)
        return self._events_of(call, seconds)

    async def patch(
        self, kind: JobKind, namespace: str, name: str, patch: Mapping[str, Any]
    ) -> dict[str, Any]:
        """A merge patch; with `metadata.resourceVersion` in it, Conflict if the job has changed."""
        call = api_calls.patch_job(kind, namespace, name, patch)
        return await self.talk(talks.ask(call, self._outside))

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
        """False if that job is gone already; Conflict if it is not in this version any more."""
        get = api_calls.get_job(kind, namespace, name)
        call = api_calls.delete_job(
            kind,
            namespace,
            name,
            uid=uid,
            resource_version=resource_version,
            foreground=foreground,
        )
        return await self.talk(talks.delete(call, get, uid, self._outside))

    async def pods(self, kind: JobKind, namespace: str, name: str) -> Objects:
        """Of a job, at most a thousand."""
        return await self.talk(talks.pods(kind, namespace, name, self._outside))

    async def events(self, namespace: str, about: Sequence[str]) -> Objects:
        """About the first few of these uids or names, oldest first; none if that is forbidden."""
        return await self.talk(talks.events(namespace, about, self._outside))

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
        """With `tail_lines`, `limit_bytes` keeps the end of them, else the beginning."""
        asked = LogQuery(
            namespace, pod, container, previous, tail_lines, limit_bytes, since, timestamps
        )
        return await self.talk(talks.ask_for_text(api_calls.read_log(asked), self._outside))

    async def follow_log(
        self,
        namespace: str,
        pod: str,
        container: str,
        *,
        since: datetime | None = None,
        timestamps: bool = False,
    ) -> AsyncIterator[str]:
        """Line by line as it is written, until the container ends."""
        asked = LogQuery(namespace, pod, container, since=since, timestamps=timestamps, follow=True)
        stream = self._lines_of(api_calls.read_log(asked), None, credentials.LONGEST_LOG_LINE)
        async with contextlib.aclosing(stream):
            async for line in stream:
                yield line.decode("utf-8", "replace")

    async def ask(self, call: Call) -> dict[str, Any]:
        """What is answered to one call of api_calls."""
        return await self.talk(talks.ask(call, self._outside))

    async def talk(self, talk: Talk[T]) -> T:
        """Carries calls and answers to and fro."""
        try:
            step = next(talk)
            while True:
                if isinstance(step, Pause):
                    _log.warning("%s Trying again in %.0f s.", step.why, step.seconds)
                    await asyncio.sleep(step.seconds)
                    step = talk.send(None)
                    continue
                try:
                    answer = await self._send(step)
                except ClusterError as error:
                    step = talk.throw(error)
                else:
                    step = talk.send(answer)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

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
        """The answer as it begins, and by whom it was asked for. Credentials that are not taken
        are made anew, once."""
        from aiohttp import ClientError

        client = await self._client()
        try:
            response = await self._request(client, call, seconds)
            if response.status == 401:
                response.close()
                client = await _clients().renewed(self.connection, client)
                response = await self._request(client, call, seconds)
            async with response:
                yield response, client
        except (ClientError, asyncio.TimeoutError, OSError) as error:
            raise unreachable(call, client.server, error) from error

    async def _request(self, client: _Client, call: Call, seconds: float | None) -> Any:
        from aiohttp import ClientError

        try:
            return await client.request(call, seconds)
        except ClientError:
            raise
        except ValueError:  # it may quote the token
            raise credentials.unsendable(self.connection) from None

    async def _read(self, call: Call, response: Any, client: _Client) -> Answer:
        body = Body(call)
        async for piece in response.content.iter_any():
            body.feed(piece)
        headers = {name.lower(): value for name, value in response.headers.items()}
        answer = Answer(response.status, headers, body.text(), client.server)
        if is_for_nobody(answer):
            _clients().forget(self.connection, client)
        return answer

    async def _client(self) -> _Client:
        return await _clients().get(self.connection)


class _Pages:
    """A list that is read page by page."""

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
        self._limit = talks.FIRST_PAGE
        self._token = ""
        self._page: Sequence[dict[str, Any]] = ()
        self.resource_version = ""

    async def fetch(self) -> None:
        outside = Outside()
        call = api_calls.list_page(*self._selection, limit=self._limit, token=self._token)
        talk = talks.patiently(call, outside.clock() + talks.PATIENCE, outside)
        answer = await self._hook.talk(talk)
        page: list[dict[str, Any]] = []
        metadata: Mapping[str, Any] = {}
        try:
            async for key, value in _in_slices(parse_list(answer.text)):
                if key == "item" and isinstance(value, dict):
                    page.append(value)
                elif key == "metadata":
                    metadata = read_mapping(value)
        except ValueError as error:
            raise no_api_server(call, answer.server) from error
        self._page = page
        self._token = read_text(metadata.get("continue"))
        self._limit = talks.next_limit(answer, len(page))
        self.resource_version = self.resource_version or read_text(metadata.get("resourceVersion"))

    async def items(self) -> AsyncIterator[dict[str, Any]]:
        while True:
            # What is done with an item counts, too.
            async for item in _in_slices(iter(self._page)):
                yield item
            if not self._token:
                return
            await self.fetch()


class _Client:
    """A session with the credentials of a connection, for as long as anybody holds it."""

    def __init__(
        self, keeper: Any, api_client: Any, extras: Mapping[str, Any], connection: str | None
    ) -> None:
        self._keeper = keeper
        self._api = api_client
        self._insecure = credentials.is_on(extras, "disable_verify_ssl")
        self.extras = extras
        self.server = credentials.shown_server(api_client.configuration.host, connection)

    async def request(self, call: Call, seconds: float | None) -> Any:
        from aiohttp import ClientTimeout

        headers = credentials.request_headers(call.content_type)
        waits = self._api.update_params_for_auth(headers, [], ["BearerToken"])
        if waits is not None:  # kubernetes_asyncio 30 does not wait
            await waits
        rest = self._api.rest_client
        options = {
            "proxy": getattr(rest, "proxy", None),
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


class _Clients:
    """Of one event loop, by connection."""

    def __init__(self) -> None:
        self._held: dict[str | None, _Client] = {}
        self._locks: dict[str | None, asyncio.Lock] = {}

    async def get(self, connection: str | None) -> _Client:
        async with self._locks.setdefault(connection, asyncio.Lock()):
            if connection not in self._held:
                self._held[connection] = await _connect(connection)
            return self._held[connection]

    async def renewed(self, connection: str | None, old: _Client) -> _Client:
        """Another than `old`, which may have been renewed by somebody else in the meantime."""
        self.forget(connection, old)
        return await self.get(connection)

    def forget(self, connection: str | None, old: _Client) -> None:
        """The next call makes credentials anew."""
        if self._held.get(connection) is old:
            del self._held[connection]


_OF_LOOPS: dict[asyncio.AbstractEventLoop, _Clients] = {}


def _clients() -> _Clients:
    """Of the running loop."""
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
        hook = hook_class(conn_id=connection)
        hook.conn_id = connection  # else None would be the connection kubernetes_default
        extras = await hook.get_conn_extras()
        if isinstance(extras.get("kube_config"), dict):
            # It is the hook's own dict; the oldest cncf-kubernetes takes a text only.
            extras["kube_config"] = json.dumps(extras["kube_config"])
        if credentials.names_no_cluster(extras) and credentials.is_in_pod():
            hook.in_cluster = True  # as the synchronous hook does
        # An asynchronous generator: it closes its client when nobody holds it any more, and at the
        # latest when the loop ends.
        keeper, last_turns = hook.get_conn(), _last_turns()
        await last_turns.__anext__()
        api_client = await keeper.__aenter__()
        credentials.check_address(api_client.configuration.host, connection)
        return _Client((keeper, last_turns), api_client, extras, connection)
    except ClusterError:
        raise
    except Exception as error:
        raise credentials.bad_connection(connection, error) from error


async def _last_turns() -> AsyncIterator[None]:
    """A loop that ends waits for its generators, and so for this one: connections over TLS are
    closed only some turns after their client."""
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
    """What `work` gives, without keeping the loop from others for long."""
    began = time.monotonic()
    for each in work:
        yield each
        if time.monotonic() - began > _SLICE:
            await asyncio.sleep(0)
            began = time.monotonic()
