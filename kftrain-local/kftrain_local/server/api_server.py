"""The API server of the embedded cluster: Kubernetes' REST API, as far as training needs it.

Whoever may create a pod can run commands. So it listens on loopback only, under a secret path, and
rejects other host names and everything that a web page can send. Whoever knows the path may do
everything: there are no users.
"""

from __future__ import annotations

import hmac
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from aiohttp import web

from kftrain_local.server import schema
from kftrain_local.server.api_reading import Reader, answer, place_of, selection
from kftrain_local.server.api_requests import (
    JSON_PATCH,
    LARGEST_BODY,
    STRATEGIC,
    Target,
    allows,
    check_change,
    check_identity,
    check_metadata,
    check_words,
    is_dry,
    number,
    parse,
    read_body,
)
from kftrain_local.server.page import Page
from kftrain_local.server.patches import apply_json_patch, merge
from kftrain_local.server.refusals import Refusal, bad_request, conflict, forbidden, invalid
from kftrain_local.server.resources import (
    NAMESPACES,
    NODES,
    PODS,
    REVIEWS,
    Resource,
    discovery,
)
from kftrain_local.server.store import (
    Key,
    Object,
    Store,
    check_preconditions,
)
from kftrain_local.times import now_text

log = logging.getLogger(__name__)

Admit = Callable[[Resource, Object, "Object | None"], Object]
"""(what it is, the new object, the old one) -> the object with defaults. Raises Refusal."""


class ApiServer:
    """`async with ApiServer(...)`: serves until the end of the block."""

    def __init__(
        self, store: Store, secret: str, page_secret: str, admit: Admit, port: int = 0
    ) -> None:
        """`page_secret`: the path of the web page, which gives no access to the API."""
        self._store = store
        self._prefix = f"/{secret}"
        self._page_prefix = f"/{page_secret}"
        self._admit = admit
        self.port = port
        self.reader = Reader(store)
        self._page = Page(store, self.reader, self._page_prefix)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}{self._prefix}"

    @property
    def page_url(self) -> str:
        return f"http://127.0.0.1:{self.port}{self._page_prefix}/"

    async def __aenter__(self) -> ApiServer:
        """Raises OSError if the port is in use."""
        app = web.Application(client_max_size=LARGEST_BODY)
        app.router.add_route("*", "/{path:.*}", self._handle)
        # A client that disconnects cancels its watch.
        self._runner = web.AppRunner(
            app, access_log=None, handler_cancellation=True, shutdown_timeout=0.5
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    # ---- from a request to an answer

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        if request.headers.get("Host") not in self._own_hosts():
            return _nothing()
        path, page_path = _below(self._prefix, request), _below(self._page_prefix, request)
        try:
            if page_path:
                return await self._page.answer(request, page_path)
            if not path:
                return _nothing()
            return await self._answer(request, path.rstrip("/") or "/")
        except Refusal as refusal:
            return answer(refusal.status(), refusal.code)
        except web.HTTPException:
            raise
        except ConnectionError:  # the client disconnected during the write
            return web.Response()
        except Exception as error:  # a bug of this server; the client waits for an answer
            log.exception("%s %s: a bug in the API server", request.method, path or page_path)
            return answer(Refusal(500, "InternalError", f"Internal error: {error!r}").status(), 500)

    def _own_hosts(self) -> tuple[str, str]:
        return f"127.0.0.1:{self.port}", f"localhost:{self.port}"

    async def _answer(self, request: web.Request, path: str) -> web.StreamResponse:
        if path in ("/healthz", "/livez", "/readyz"):
            return web.Response(text="ok")
        if path.startswith("/openapi/v3"):
            return answer(schema.openapi(path))
        if request.method == "GET" and (found := discovery(path)) is not None:
            return answer(found)
        target = parse(path)
        if target is None:
            if path.startswith("/api/v1/"):
                text = "the server could not find the requested resource"
                raise Refusal(404, "NotFound", text)
            return _nothing()
        if target.part == "log":
            return await self.reader.log(request, target)
        methods: Mapping[str, Callable[[web.Request, Target], Awaitable[web.StreamResponse]]] = {
            "GET": self.reader.get,
            "POST": self._post,
            "PUT": self._put,
            "PATCH": self._patch,
            "DELETE": self._delete,
        }
        if request.method not in methods or not allows(request.method, target):
            text = "the server does not allow this method on the requested resource"
            raise Refusal(405, "MethodNotAllowed", text)
        return await methods[request.method](request, target)

    # ---- writing

    async def _post(self, request: web.Request, target: Target) -> web.Response:
        resource, query = target.resource, request.query
        given, twice = await read_body(request, resource)
        if target.part == "binding":
            return self._bind(target, given)
        if target.part == "eviction":
            return self._evict(target, given)
        check_words("CreateOptions", query)
        check_identity(target, given)
        if resource == REVIEWS:
            return answer({**given, "status": {"allowed": True}}, 201)
        warnings = schema.check(resource, given, query.get("fieldValidation", "Warn"), twice)
        check_metadata(resource, given["metadata"])
        name = given["metadata"].get("name", "")
        if given["metadata"].get("resourceVersion"):
            text = "resourceVersion should not be set on objects to be created"
            raise Refusal(500, "", text)
        if resource.namespaced:
            self._check_namespace(target, name)
        if resource.job is not None and not resource.job.runs:
            text = f"{resource.kind} of {resource.api_version} needs a real cluster"
            raise forbidden(resource, name, text)
        made = self._store.create(resource, target.namespace, _without_status(resource, given))
        made = self._admit(resource, made, None)
        if not is_dry(query):
            made = self._store.add(resource, made)
        return answer(made, 201, warnings)

    def _check_namespace(self, target: Target, name: str) -> None:
        namespace = self._store.get(Key(NAMESPACES, "", target.namespace))
        if "deletionTimestamp" in namespace["metadata"]:
            cause = {
                "reason": "NamespaceTerminating",
                "message": f"namespace {target.namespace} is being terminated",
                "field": "metadata.namespace",
            }
            why = f"unable to create new content in namespace {target.namespace}"
            why = f"{why} because it is being terminated"
            raise forbidden(target.resource, name, why, causes=[cause])

    def _bind(self, target: Target, given: Object) -> web.Response:
        pod = self._store.get(target.key)
        status = pod.get("status") or {}
        if node := pod["spec"].get("nodeName"):
            text = f'pod {target.name} is already assigned to node "{node}"'
            raise conflict(PODS, target.name, text)
        others = [each for each in status.get("conditions") or () if each["type"] != "PodScheduled"]
        scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": now_text()}
        status = {**status, "conditions": [*others, scheduled]}
        to = given.get("target")
        name = to.get("name") if isinstance(to, dict) else None
        if not name or not isinstance(name, str):
            raise invalid(PODS, target.name, "target.name: Required value")
        spec = {**pod["spec"], "nodeName": name}
        self._store.keep(target.key, {**pod, "spec": spec, "status": status})
        return answer({"kind": "Status", "apiVersion": "v1", "status": "Success", "code": 201}, 201)

    def _evict(self, target: Target, given: Object) -> web.Response:
        """Deletes the pod, and notes why. There are no PodDisruptionBudgets."""
        pod = self._store.get(target.key)
        status = pod.get("status") or {}
        others = [
            each for each in status.get("conditions") or () if each["type"] != "DisruptionTarget"
        ]
        target_of = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting",
            "lastTransitionTime": now_text(),
        }
        if status.get("phase") not in ("Succeeded", "Failed"):
            self._store.keep(
                target.key, {**pod, "status": {**status, "conditions": [*others, target_of]}}
            )
        self._store.delete(target.key, given.get("deleteOptions") or {})
        return answer({"kind": "Status", "apiVersion": "v1", "status": "Success", "code": 201}, 201)

    async def _put(self, request: web.Request, target: Target) -> web.Response:
        given, twice = await read_body(request, target.resource)
        check_identity(target, given)
        return self._change(request, target, given, twice)

    async def _patch(self, request: web.Request, target: Target) -> web.Response:
        patch, _ = await read_body(request, target.resource)
        kind, old = request.content_type, self._store.get(target.key)
        if kind == JSON_PATCH:
            new = apply_json_patch(old, patch)
        else:
            new = merge(old, patch, lists_by_name=kind == STRATEGIC)
        if not isinstance(new, dict):
            raise bad_request("the patch makes something else of the object")
        check_identity(target, new)
        return self._change(request, target, new, patch=patch)

    def _change(
        self,
        request: web.Request,
        target: Target,
        new: Object,
        twice: list[str] | None = None,
        patch: Any = None,
    ) -> web.Response:
        resource, query, of_status = target.resource, request.query, target.part == "status"
        check_words("UpdateOptions" if patch is None else "PatchOptions", query)
        old = self._store.get(target.key)
        warnings: list[str] = []
        if of_status:
            schema.check_status(resource, new)
        else:
            validation = query.get("fieldValidation", "Warn")
            warnings = schema.check(resource, new, validation, twice or (), patch)
            check_metadata(resource, new["metadata"])
        check_change(target, old, new, is_patch=patch is not None)
        new = self._store.replace(target.key, _part(resource, old, new, of_status=of_status))
        if not of_status or resource == PODS:
            new = self._admit(resource, new, old)
        if resource.counts_generations and new.get("spec") != old.get("spec"):
            generation = old["metadata"]["generation"] + 1
            new = {**new, "metadata": {**new["metadata"], "generation": generation}}
        if not is_dry(query):
            new = self._store.keep(target.key, new)
        return answer(new, 200, warnings)

    async def _delete(self, request: web.Request, target: Target) -> web.Response:
        options: Object = {}
        if request.can_read_body:
            options = (await read_body(request, target.resource)).value
            schema.check_options(options)
        if not options:  # if there is a body, the query is ignored
            options = dict(request.query)
        check_words("DeleteOptions", options)
        number(options, "gracePeriodSeconds")
        if target.name:
            return answer(self._delete_one(target.key, options))
        matches = selection(target, request.query)
        found = self._store.listed(target.resource, target.namespace, matches)
        for each in found:
            key = Key(target.resource, *place_of(each))
            if self._store.find(key) is not None:
                self._delete_one(key, options)
        kind = f"{target.resource.kind}List"
        items = [each.object for each in found]
        return answer({"kind": kind, "apiVersion": target.resource.api_version, "items": items})

    def _delete_one(self, key: Key, options: Object) -> Object:
        old = self._store.get(key)
        if is_dry(options):
            check_preconditions(key, old["metadata"], options)
        else:
            left = self._store.delete(key, options)
            if key.resource in (PODS, NAMESPACES) or self._store.find(key) is not None:
                return left
        details = {
            "name": key.name,
            "group": key.resource.group,
            "kind": key.resource.plural,
            "uid": old["metadata"]["uid"],
        }
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Success",
            "details": {name: value for name, value in details.items() if value},
        }


def _part(resource: Resource, old: Object, new: Object, *, of_status: bool) -> Object:
    """A write to the object leaves the status unchanged, and the other way round."""
    if of_status:
        version = new["metadata"].get("resourceVersion")
        metadata = {**old["metadata"], "resourceVersion": version}
        new = {**old, "metadata": metadata, "status": new.get("status")}
    elif resource.has_status:
        new = {**new, "status": old.get("status")}
    return {name: value for name, value in new.items() if value is not None}


def _without_status(resource: Resource, given: Object) -> Object:
    """The status that a client sends with a new object is ignored."""
    if not resource.has_status or resource == NODES:
        return given
    return {key: value for key, value in given.items() if key != "status"}


def _below(prefix: str, request: web.Request) -> str:
    """The path below a secret one; empty for clients that do not know it."""
    start, path = request.path[: len(prefix)], request.path[len(prefix) :]
    known = hmac.compare_digest(start.encode(), prefix.encode())
    return path if known and path[:1] == "/" else ""


def _nothing() -> web.Response:
    return web.Response(status=404, text="404 page not found\n")
