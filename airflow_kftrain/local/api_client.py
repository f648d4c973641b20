"""A small asynchronous client of any Kubernetes API, given by a kubeconfig.

It speaks dicts and paths. A failed call raises `ApiError` when the server refused, and
`ApiUnreachable` when no answer came. `follow` is the one way to watch: it lists, watches, resumes,
lists again after 410 and reconnects, for ever.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
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

from airflow_kftrain.errors import KfTrainError

log = logging.getLogger(__name__)

Object = dict[str, Any]

_PAGE = 500
_WATCH_SECONDS = 300
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.2, 10.0


class BadKubeconfig(KfTrainError):
    """The kubeconfig cannot be read, or asks for what this client does not do."""


class ApiUnreachable(KfTrainError):
    """No answer came."""


class ApiError(KfTrainError):
    """The API server answered with an error."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(f"{message} (HTTP {code} {reason})")
        self.code = code
        self.reason = reason


class Cluster(NamedTuple):
    """Where the API server is, and how to authenticate."""

    server: str
    token: str = ""
    tls: ssl.SSLContext | None = None


def read_kubeconfig(path: str | Path) -> Cluster:
    """The cluster of the current context; raises BadKubeconfig."""
    path = Path(path).expanduser()
    try:
        config = yaml.safe_load(path.read_text())
        context = _named(config, "contexts", config["current-context"])["context"]
        cluster = _named(config, "clusters", context["cluster"])["cluster"]
        user = _named(config, "users", context["user"])["user"] or {}
        server = str(cluster["server"]).rstrip("/")
    except (OSError, UnicodeDecodeError) as error:
        raise BadKubeconfig(f"kubeconfig {path} cannot be read: {error}") from error
    except (yaml.YAMLError, TypeError, KeyError, AttributeError) as error:
        raise BadKubeconfig(f"{path} is not a kubeconfig: {_line(error)}") from error
    for unknown in ("exec", "auth-provider"):
        if unknown in user:
            raise BadKubeconfig(f"kubeconfig {path}: users with {unknown!r} are not supported")
    try:
        token = user.get("token") or _text_of(path, user.get("tokenFile"))
        tls = _tls(path, cluster, user) if server.startswith("https:") else None
    except (OSError, ssl.SSLError, binascii.Error) as error:
        raise BadKubeconfig(f"kubeconfig {path}: bad token or certificate: {error}") from error
    return Cluster(server, token, tls)


def _named(config: Any, section: str, name: str) -> Object:
    for entry in config[section]:
        if entry["name"] == name:
            return dict(entry)
    raise KeyError(f"{name} in {section}")


def _text_of(kubeconfig: Path, file: str | None) -> str:
    """The content of a file that a kubeconfig names, relative to itself."""
    return (kubeconfig.parent / Path(file).expanduser()).read_text().strip() if file else ""


def _tls(path: Path, cluster: Object, user: Object) -> ssl.SSLContext:
    authority = _pem(path, cluster, "certificate-authority")
    context = ssl.create_default_context(cadata=authority or None)
    if cluster.get("insecure-skip-tls-verify"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    certificate, key = _pem(path, user, "client-certificate"), _pem(path, user, "client-key")
    if certificate:
        # The ssl module takes certificates from files only; this one is private and short-lived.
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
            file.write(f"{certificate}\n{key}\n")
            file.flush()
            context.load_cert_chain(file.name)
    return context


def _pem(kubeconfig: Path, section: Object, name: str) -> str:
    if data := section.get(f"{name}-data"):
        return base64.b64decode(data).decode("ascii", "replace")
    return _text_of(kubeconfig, section.get(name))


def core(namespace: str, plural: str, name: str = "", part: str = "") -> str:
    """The path of a core v1 object or collection; "" as namespace: of the whole cluster."""
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
        connector = aiohttp.TCPConnector(ssl=cluster.tls or True, limit=0)
        timeout = aiohttp.ClientTimeout(total=30, sock_connect=10)
        self._session = aiohttp.ClientSession(connector=connector, headers=headers, timeout=timeout)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._session is not None
        await self._session.close()

    async def get(self, path: str, **params: str) -> Object:
        return await self._call("GET", path, params=params)

    async def create(self, path: str, body: Object) -> Object:
        return await self._call("POST", path, body=body)

    async def merge_patch(self, path: str, body: Object) -> Object:
        kind = "application/merge-patch+json"
        return await self._call("PATCH", path, body=body, content_type=kind)

    async def delete(self, path: str, uid: str = "", grace: int | None = None) -> Object:
        """All conditions go into the body: beside a body, a query string is ignored."""
        options: Object = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if uid:
            options["preconditions"] = {"uid": uid}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        return await self._call("DELETE", path, body=options)

    async def list(self, path: str, **params: str) -> tuple[list[Object], str]:
        """All objects of a collection, read in pages, and the version to watch from."""
        items: list[Object] = []
        token = ""
        while True:
            page = await self.get(path, limit=str(_PAGE), **params, **_present("continue", token))
            items += page.get("items") or []
            token = page["metadata"].get("continue") or ""
            if not token:
                return items, page["metadata"]["resourceVersion"]

    async def follow(self, path: str, **params: str) -> AsyncIterator[tuple[str, Any]]:
        """("LISTED", all objects) at first and whenever events may have been missed; in between
        ("ADDED" | "MODIFIED" | "DELETED", object). Ends only with its task."""
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
                pause = _SHORTEST_PAUSE  # it came to its regular end
            except ApiError as error:
                version = ""  # expired, or the server is in a state of its own: start afresh
                if error.code != 410:
                    log.warning("watch of %s is interrupted: %s", path, error)
            except ApiUnreachable as error:
                log.warning("watch of %s is interrupted: %s", path, error)
            await asyncio.sleep(pause * random.uniform(0.5, 1))
            pause = min(pause * 2, _LONGEST_PAUSE)

    async def _watch(
        self, path: str, version: str, params: Mapping[str, str]
    ) -> AsyncIterator[tuple[str, Object]]:
        assert self._session is not None
        query = {
            **params,
            "watch": "true",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(_WATCH_SECONDS),
        }
        # A server that vanished without a word shows itself by an overdue end of the watch.
        timeout = aiohttp.ClientTimeout(sock_connect=10, total=_WATCH_SECONDS + 30)
        try:
            url = self._cluster.server + path
            async with self._session.get(url, params=query, timeout=timeout) as response:
                if response.status != 200:
                    raise _refusal(response.status, await response.text())
                async for line in _lines(response):
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        raise _refusal(event["object"].get("code", 500), event["object"])
                    yield event["type"], event["object"]
        except (aiohttp.ClientError, asyncio.TimeoutError, json.JSONDecodeError) as error:
            raise ApiUnreachable(f"{self._cluster.server}: {_line(error)}") from error

    async def _call(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Object | None = None,
        content_type: str = "application/json",
    ) -> Object:
        assert self._session is not None
        data = None if body is None else json.dumps(body)
        headers = {"Content-Type": content_type} if body is not None else {}
        try:
            async with self._session.request(
                method, self._cluster.server + path, params=params, data=data, headers=headers
            ) as response:
                text = await response.text()
        except (aiohttp.ClientError, asyncio.TimeoutError) as error:
            raise ApiUnreachable(
                f"{self._cluster.server} does not answer: {_line(error)}"
            ) from error
        if response.status >= 300:
            raise _refusal(response.status, text)
        try:
            return dict(json.loads(text))
        except ValueError as error:
            raise ApiUnreachable(f"{self._cluster.server} does not speak JSON") from error


def _line(error: Exception) -> str:
    """An error of others in one line; some of them have no text."""
    return " ".join(f"{type(error).__name__} {error}".split())[:300]


def _present(name: str, value: str) -> dict[str, str]:
    return {name: value} if value else {}


async def _lines(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Lines of any length; the reader's own method has a limit that large objects exceed."""
    rest = b""
    async for chunk in response.content.iter_any():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line:
                yield line


def _refusal(code: int, answer: str | Object) -> ApiError:
    status: Any = answer
    if isinstance(answer, str):
        try:
            status = json.loads(answer)
        except ValueError:
            status = None
    if not isinstance(status, dict):
        return ApiError(code, "", str(answer)[:300].strip())
    return ApiError(code, status.get("reason", ""), str(status.get("message", ""))[:1000])
