"""A small asynchronous client for any Kubernetes API, configured by a kubeconfig.

It uses dicts and paths. A failed call raises `ApiError` if the server has answered with an error,
and `ApiUnreachable` if there was no answer. `follow` is the only way to watch: it lists, watches,
resumes, lists again after a 410 and reconnects, for ever.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import logging
import random
import ssl
import tempfile
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import yaml

from kftrain_local.errors import LocalError

log = logging.getLogger(__name__)

Object = dict[str, Any]

_PAGE = 500
_WATCH_SECONDS = 300
_LONGEST_LINE = 8 << 20  # of a watch: an object of any size that etcd accepts
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.2, 10.0


class BadKubeconfig(LocalError):
    """The kubeconfig cannot be read, or needs something that this client does not support."""


class ApiFailure(LocalError):
    """A call has failed."""

    code = 0
    """The HTTP status of the answer; 0 without an answer."""


class ApiUnreachable(ApiFailure):
    """There was no answer, or none that can be read."""


class ApiError(ApiFailure):
    """The API server has answered with an error."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(f"{message} (HTTP {code} {reason})")
        self.code = code
        self.reason = reason
        self.message = message


class Cluster(NamedTuple):
    """Where the API server is, and how to authenticate."""

    server: str
    token: str = ""
    tls: ssl.SSLContext | None = None


def read_kubeconfig(path: str | Path) -> Cluster:
    """The cluster of the current context. Raises BadKubeconfig."""
    path = Path(path).expanduser()
    try:
        config = yaml.safe_load(path.read_text())
        context = _named(config, "context", config["current-context"])
        cluster = _named(config, "cluster", context["cluster"])
        user = _named(config, "user", context["user"])
        if unknown := {"exec", "auth-provider"} & set(user):
            raise ValueError(f"users with {', '.join(unknown)} are not supported")
        server = str(cluster["server"]).rstrip("/")
        token = user.get("token") or _content(path, user, "tokenFile")
        tls = _tls(path, cluster, user) if server.startswith("https:") else None
    # Anything may be wrong with such a file: its text, its structure, or what it refers to.
    except (OSError, ValueError, TypeError, LookupError, AttributeError, yaml.YAMLError) as error:
        raise BadKubeconfig(f"kubeconfig {path} cannot be used: {_line(error)}") from error
    return Cluster(server, token, tls)


def _named(config: Any, kind: str, name: str) -> Object:
    entries = {entry["name"]: entry.get(kind) for entry in config[f"{kind}s"]}
    return dict(entries[name] or {})


def _content(kubeconfig: Path, section: Object, name: str) -> str:
    """The content of a field of a kubeconfig: the data itself, or a file whose path is relative to
    it."""
    if data := section.get(f"{name}-data"):
        return base64.b64decode(data).decode("ascii", "replace")
    file = section.get(name)
    return (kubeconfig.parent / Path(file).expanduser()).read_text().strip() if file else ""


def _tls(path: Path, cluster: Object, user: Object) -> ssl.SSLContext:
    authority = _content(path, cluster, "certificate-authority")
    context = ssl.create_default_context(cadata=authority or None)
    if cluster.get("insecure-skip-tls-verify"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if certificate := _content(path, user, "client-certificate"):
        # The ssl module reads certificates only from files. This one is private and exists only for
        # a moment.
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
            file.write(f"{certificate}\n{_content(path, user, 'client-key')}\n")
            file.flush()
            context.load_cert_chain(file.name)
    return context


def core(namespace: str, plural: str, name: str = "", part: str = "") -> str:
    """The path of a core v1 object or collection; "" as namespace means the whole cluster."""
    scope = f"/namespaces/{namespace}" if namespace else ""
    return "/".join(piece for piece in (f"/api/v1{scope}/{plural}", name, part) if piece)


class ApiClient:
    """`async with ApiClient(read_kubeconfig(path)) as api: await api.get(core("ns", "pods"))`"""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> ApiClient:
        cluster = self._cluster
        headers = {"Accept": "application/json", "User-Agent": "kftrain-agent"}
        if cluster.token:
            headers["Authorization"] = f"Bearer {cluster.token}"
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=cluster.tls or True, limit=0),
            headers=headers,
            timeout=aiohttp.ClientTimeout(total=30, sock_connect=10),
            read_bufsize=_LONGEST_LINE,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._session is not None
        await self._session.close()

    async def get(self, path: str, **params: str) -> Object:
        return await self._call("GET", path, params=params)

    async def find(self, path: str) -> Object | None:
        """None if there is no such object."""
        try:
            return await self.get(path)
        except ApiError as error:
            if error.code == 404:
                return None
            raise

    async def create(self, path: str, body: Object) -> Object:
        return await self._call("POST", path, json=body)

    async def replace(self, path: str, body: Object) -> Object:
        return await self._call("PUT", path, json=body)

    async def merge_patch(self, path: str, body: Object) -> Object:
        headers = {"Content-Type": "application/merge-patch+json"}
        return await self._call("PATCH", path, json=body, headers=headers)

    async def delete(
        self, path: str, uid: str = "", grace: int | None = None, policy: str = ""
    ) -> Object:
        """All conditions are in the body: if there is a body, the server ignores the query."""
        options: Object = {"apiVersion": "v1", "kind": "DeleteOptions"}
        options |= {"preconditions": {"uid": uid}} if uid else {}
        options |= {"gracePeriodSeconds": grace} if grace is not None else {}
        options |= {"propagationPolicy": policy} if policy else {}
        return await self._call("DELETE", path, json=options)

    async def list(self, path: str, **params: str) -> tuple[list[Object], str]:
        """All objects of a collection, read in pages, and the version to watch from."""
        items: list[Object] = []
        params["limit"] = str(_PAGE)
        while True:
            page = await self.get(path, **params)
            items += page.get("items") or []
            params["continue"] = page["metadata"].get("continue") or ""
            if not params["continue"]:
                return items, page["metadata"]["resourceVersion"]

    async def follow(self, path: str, **params: str) -> AsyncIterator[tuple[str, Any]]:
        """Yields ("LISTED", all objects) at first and whenever events may have been missed; in
        between ("ADDED" | "MODIFIED" | "DELETED", object). It ends only when its task is
        cancelled."""
        version, pause = "", _SHORTEST_PAUSE
        while True:
            try:
                if not version:
                    items, version = await self.list(path, **params)
                    yield "LISTED", items
                async for kind, found in self._watch(path, version, params):
                    version = found["metadata"]["resourceVersion"]
                    pause = _SHORTEST_PAUSE
                    if kind != "BOOKMARK":
                        yield kind, found
                pause = _SHORTEST_PAUSE  # it ended as planned
            except ApiFailure as error:
                if error.code:
                    version = ""  # the version has expired, or the server has a problem: list again
                if error.code != 410:
                    log.warning("watch of %s is interrupted: %s", path, error)
            await asyncio.sleep(pause * random.uniform(0.5, 1))
            pause = min(pause * 2, _LONGEST_PAUSE)

    async def lines(self, path: str, **params: str) -> AsyncIterator[str]:
        """A log, line by line as it arrives."""
        timeout = aiohttp.ClientTimeout(sock_connect=10)
        async with self._answer("GET", path, params=params, timeout=timeout) as response:
            async for line in response.content:
                yield line.decode("utf-8", "replace").rstrip("\n")

    async def _watch(
        self, path: str, version: str, params: Mapping[str, str]
    ) -> AsyncIterator[tuple[str, Object]]:
        query = {
            **params,
            "watch": "true",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(_WATCH_SECONDS),
        }
        # If a server has silently disappeared, the watch lasts longer than requested.
        timeout = aiohttp.ClientTimeout(sock_connect=10, total=_WATCH_SECONDS + 30)
        async with self._answer("GET", path, params=query, timeout=timeout) as response:
            async for line in response.content:
                event = json.loads(line)
                if event["type"] == "ERROR":
                    raise _refusal(event["object"].get("code", 500), event["object"])
                yield event["type"], event["object"]

    async def _call(self, method: str, path: str, **options: Any) -> Object:
        async with self._answer(method, path, **options) as response:
            return dict(json.loads(await response.text()))

    @contextlib.asynccontextmanager
    async def _answer(
        self, method: str, path: str, **options: Any
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """A successful answer, still to be read as JSON. Raises ApiError and ApiUnreachable."""
        assert self._session is not None
        server = self._cluster.server
        # Without the path, which may be a key (that of the fault proxy is): errors are logged.
        shown = "/".join(server.split("/")[:3])
        try:
            async with self._session.request(method, server + path, **options) as response:
                if response.status >= 300:
                    raise _refusal(response.status, await response.text())
                yield response
        except (aiohttp.ClientError, asyncio.TimeoutError) as error:
            raise ApiUnreachable(f"{shown} does not answer: {_line(error)}") from error
        except ValueError as error:
            raise ApiUnreachable(f"{shown} does not answer in JSON: {_line(error)}") from error


def _line(error: Exception) -> str:
    """An error of a library in one line; some errors have no text."""
    return " ".join(f"{type(error).__name__} {error}".split())[:300]


def _refusal(code: int, answer: str | Object) -> ApiError:
    status: Any = answer
    if isinstance(answer, str):
        with contextlib.suppress(ValueError):
            status = json.loads(answer)
    if not isinstance(status, dict):
        return ApiError(code, "", str(answer)[:300].strip())
    return ApiError(code, status.get("reason", ""), str(status.get("message", ""))[:1000])
