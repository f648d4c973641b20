"""Reads what the embedded cluster stores: objects, lists with pages, watches, logs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from kftrain_local.agent.logs import FindLog, NoLog, read_log
from kftrain_local.server.api_requests import (
    JSON,
    Place,
    Target,
    number,
    read_log_options,
    says_yes,
    version_of,
)
from kftrain_local.server.refusals import Refusal, bad_request, expired
from kftrain_local.server.resources import Resource, table
from kftrain_local.server.selectors import Matches, everything, selector
from kftrain_local.server.store import Change, Object, Store, Stored, encode, head_of

_PAGES_KEPT = 100
_BOOKMARK_EVERY = 60.0
_LONGEST_WATCH = 3600.0


class Reader:
    find_log: FindLog
    """Finds a log on the one node; set when that exists."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._pages: dict[str, list[Stored]] = {}
        self._lists = 0

    async def get(self, request: web.Request, target: Target) -> web.StreamResponse:
        query, resource = request.query, target.resource
        _check_accept(request)
        if target.name and not says_yes(query, "watch"):
            found = self._store.get(target.key)
            return answer(table(resource, "", [found]) if _wants_table(request) else found)
        matches = selection(target, query)
        if says_yes(query, "watch"):
            return await self._watch(request, target, matches)
        return self._list(request, target, matches)

    def _list(self, request: web.Request, target: Target, matches: Matches) -> web.Response:
        query, resource = request.query, target.resource
        self._check_moment(query)
        version = self._store.version
        items = self._store.listed(resource, target.namespace, matches)
        if token := query.get("continue"):
            version, items = self._rest(Place.read(token), token, items)
        metadata: Object = {"resourceVersion": str(version)}
        limit = number(query, "limit")
        if 0 < limit < len(items):
            metadata["continue"] = self._keep_rest(version, items, limit)
            if matches is everything:
                metadata["remainingItemCount"] = len(items) - limit
            items = items[:limit]
        if _wants_table(request):
            shown = table(resource, str(version), [each.object for each in items])
            return answer({**shown, "metadata": metadata})
        head = {"kind": f"{resource.kind}List", "apiVersion": resource.api_version}
        start = encode({**head, "metadata": metadata})[:-1]
        # Items of built-in kinds have no kind of their own.
        cut = 1 if resource.is_custom else len(encode(head_of(resource)))
        texts = [b"{" + each.encoded[cut:] for each in items]
        body = start + b',"items":[' + b",".join(texts) + b"]}"
        return web.Response(body=body, content_type=JSON)

    def _check_moment(self, query: Mapping[str, str]) -> None:
        """Only current lists are available."""
        try:
            wanted = version_of(query)
        except ValueError as error:
            raise bad_request(str(error)) from error
        if wanted and query.get("continue"):
            raise bad_request("specifying resource version is not allowed when using continue")
        if wanted > self._store.version:
            text = "Too large resource version"
            cause = {"reason": "ResourceVersionTooLarge", "message": text}
            text = f"{text}: {wanted}, current: {self._store.version}"
            raise Refusal(504, "Timeout", text, causes=[cause], retryAfterSeconds=1)
        if query.get("resourceVersionMatch") == "Exact" and wanted != self._store.version:
            raise expired(f"The resourceVersion for the provided list is too old: {wanted}")

    def _keep_rest(self, version: int, items: list[Stored], limit: int) -> str:
        """Returns the token for the rest after this page."""
        self._lists += 1
        place = Place(version, *place_of(items[limit - 1]), self._lists)
        self._pages[place.token()] = items[limit:]
        while len(self._pages) > _PAGES_KEPT:
            del self._pages[next(iter(self._pages))]
        return place.token()

    def _rest(self, place: Place, token: str, items: list[Stored]) -> tuple[int, list[Stored]]:
        """The rest, as it was when the first page was requested, or as `items` are now."""
        if place.version and token in self._pages and self._store.remembers(place.version):
            return place.version, self._pages[token]
        if place.version:
            text = "The provided continue parameter is too old to display a consistent list result."
            refusal = expired(f"{text} The one in this answer goes on with what there is now.")
            refusal.metadata = {"continue": place._replace(version=0).token()}
            raise refusal
        after = (place.namespace, place.name)
        return self._store.version, [each for each in items if place_of(each) > after]

    async def _watch(
        self, request: web.Request, target: Target, matches: Matches
    ) -> web.StreamResponse:
        query, resource = request.query, target.resource
        seconds = number(query, "timeoutSeconds")
        try:
            version = version_of(query)
        except ValueError as error:
            raise Refusal(500, "", str(error)) from error
        response = web.StreamResponse(headers={"Content-Type": JSON})
        await response.prepare(request)
        try:
            watch = self._store.watch(resource, target.namespace, matches, version)
        except Refusal as refusal:
            await response.write(encode({"type": "ERROR", "object": refusal.status()}) + b"\n")
            return response
        bookmarks = says_yes(query, "allowWatchBookmarks")
        ends = asyncio.get_running_loop().time() + (seconds or _LONGEST_WATCH)

        async def tell(changes: list[tuple[str, Change]]) -> None:
            as_table = _wants_table(request)
            lines = [_line(resource, type_, each, as_table) for type_, each in changes]
            await response.write(b"".join(lines))

        try:
            if bookmarks and says_yes(query, "sendInitialEvents"):
                await tell(watch.so_far())
                annotations = {"k8s.io/initial-events-end": "true"}
                await response.write(_bookmark(resource, self._store.version, annotations))
            while (left := ends - asyncio.get_running_loop().time()) > 0 and not watch.is_behind:
                try:
                    await tell(await asyncio.wait_for(watch.next(), min(left, _BOOKMARK_EVERY)))
                except asyncio.TimeoutError:
                    if bookmarks:
                        await response.write(_bookmark(resource, self._store.version))
        finally:
            self._store.unwatch(watch)
        return response

    async def log(self, request: web.Request, target: Target) -> web.StreamResponse:
        pod = self._store.get(target.key)
        container = _log_container(pod, request.query.get("container", ""))
        options = read_log_options(target.name, request.query)
        if not pod["spec"].get("nodeName"):
            return web.Response(status=204)
        try:
            found = self.find_log(target.namespace, target.name, container, options.previous)
        except NoLog as missing:
            raise bad_request(str(missing)) from missing
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        async for block in read_log(found, options):
            await response.write(block)
        return response


def selection(target: Target, query: Mapping[str, str]) -> Matches:
    fields = query.get("fieldSelector", "")
    if target.name:  # a watch of one object
        fields = f"metadata.name={target.name}"
    return selector(target.resource, query.get("labelSelector", ""), fields)


def place_of(stored: Stored) -> tuple[str, str]:
    metadata = stored.object["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


def _check_accept(request: web.Request) -> None:
    accept = request.headers.get("Accept", "*/*")
    if not any(word in accept for word in (JSON, "*/*", "application/*")):
        text = f"only the following media types are accepted: {JSON}"
        raise Refusal(406, "NotAcceptable", text)


def _wants_table(request: web.Request) -> bool:
    return "as=Table" in request.headers.get("Accept", "")


def _line(resource: Resource, type_: str, change: Change, as_table: bool) -> bytes:
    if not as_table:
        return change.line(type_)
    shown = table(resource, str(change.version), [change.object(type_)])
    return encode({"type": type_, "object": shown}) + b"\n"


def _bookmark(resource: Resource, version: int, annotations: Object | None = None) -> bytes:
    metadata: Object = {"resourceVersion": str(version)}
    if annotations:
        metadata["annotations"] = annotations
    found = {**head_of(resource), "metadata": metadata}
    return encode({"type": "BOOKMARK", "object": found}) + b"\n"


def _log_container(pod: Object, name: str) -> str:
    metadata, spec = pod["metadata"], pod["spec"]
    main = [each["name"] for each in spec["containers"]]
    names = [each["name"] for each in spec.get("initContainers") or ()] + main
    if not name and len(main) == 1:
        return str(main[0])
    if not name:
        text = f"a container name must be specified for pod {metadata['name']}, choose one of: "
        raise bad_request(f"{text}[{' '.join(names)}]")
    if name not in names:
        raise bad_request(f"container {name} is not valid for pod {metadata['name']}")
    return name


def answer(body: Any, code: int = 200, warnings: list[str] | None = None) -> web.Response:
    response = web.Response(body=encode(body), status=code, content_type=JSON)
    for warning in warnings or ():
        text = warning.replace("\\", r"\\").replace('"', r"\"")
        response.headers.add("Warning", f'299 - "{text}"')
    return response
