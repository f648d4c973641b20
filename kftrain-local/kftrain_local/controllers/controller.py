"""What the controllers of the embedded cluster have in common: they are clients of its API.

A controller handles one object at a time and does what is missing. It is called again when the
object, its pods, services or child jobs change, and when the time that it has asked for is over.
"""

from __future__ import annotations

import asyncio
import copy
import hashlib
import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote

from kftrain_local.api_client import ApiClient, ApiError, ApiUnreachable, core
from kftrain_local.server.resources import Resource
from kftrain_local.times import now_text

log = logging.getLogger(__name__)

Object = dict[str, Any]

_RETRY, _LONGEST_RETRY = 0.5, 60.0
_AT_ONCE = 4
"""How many objects are handled at once, so that a client that creates many is not kept waiting."""


class Controller(Protocol):
    resource: Resource

    async def reconcile(self, found: Object) -> float | None:
        """Does what is missing. Returns the seconds after which to call it again."""

    async def gone(self, namespace: str, name: str) -> None:
        """Called when there is no object of that name any more."""
        return


class _Place(NamedTuple):
    kind: str
    namespace: str
    name: str


class Controllers:
    """`run` works until it is cancelled."""

    def __init__(self, api: ApiClient, controllers: Iterable[Controller]) -> None:
        self._api = api
        self._controllers = {each.resource.kind: each for each in controllers}
        self._at_work: set[_Place] = set()
        self._again: set[_Place] = set()
        self._timers: dict[_Place, asyncio.TimerHandle] = {}
        self._failures: Counter[_Place] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()
        self._turn = asyncio.Semaphore(_AT_ONCE)

    async def run(self) -> None:
        paths = {collection(each.resource): kind for kind, each in self._controllers.items()}
        paths |= {core("", "pods"): "", core("", "services"): ""}
        follows = [self._follow(path, kind) for path, kind in paths.items()]
        try:
            await asyncio.gather(*follows)
        finally:
            for task in self._tasks:
                task.cancel()

    async def _follow(self, path: str, of: str) -> None:
        async for kind, found in self._api.follow(path):
            for each in found if kind == "LISTED" else [found]:
                metadata = each["metadata"]
                self._wake(of, metadata["namespace"], metadata["name"])
                for owner in metadata.get("ownerReferences") or ():
                    self._wake(owner["kind"], metadata["namespace"], owner["name"])

    def _wake(self, kind: str, namespace: str, name: str) -> None:
        if kind not in self._controllers or not name:
            return
        place = _Place(kind, namespace, name)
        # Otherwise each pass would leave one more behind.
        if timer := self._timers.pop(place, None):
            timer.cancel()
        if place in self._at_work:
            self._again.add(place)
            return
        self._at_work.add(place)
        task = asyncio.create_task(self._work(place))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _work(self, place: _Place) -> None:
        async with self._turn:
            delay = await self._look(place)
        self._at_work.discard(place)
        if place in self._again:
            self._again.discard(place)
            self._wake(*place)
        elif delay is not None:
            loop = asyncio.get_running_loop()
            self._timers[place] = loop.call_later(max(delay, 0.01), self._wake, *place)

    async def _look(self, place: _Place) -> float | None:
        controller = self._controllers[place.kind]
        # The name of an owner is any text that somebody has written.
        path = f"{collection(controller.resource, place.namespace)}/{quote(place.name, safe='')}"
        try:
            delay = None
            if (found := await self._api.find(path)) is not None:
                delay = await controller.reconcile(copy.deepcopy(found))
            else:
                await controller.gone(place.namespace, place.name)
            self._failures.pop(place, None)
            return delay
        except (ApiError, ApiUnreachable) as error:
            # The object has changed or is gone: the next event, or the next pass, handles that.
            code = error.code if isinstance(error, ApiError) else 0
            if code in (404, 409):
                return _RETRY if code == 409 else None
            log.warning("%s %s/%s: %s", *place, error)
            pause = min(_RETRY * 2 ** min(self._failures[place], 10), _LONGEST_RETRY)
            self._failures[place] += 1
            return float(pause)
        except Exception:
            log.exception("%s %s/%s: a bug in its controller", *place)
        return None


def collection(resource: Resource, namespace: str = "") -> str:
    scope = f"/namespaces/{namespace}" if namespace else ""
    root = f"/apis/{resource.api_version}" if resource.group else f"/api/{resource.version}"
    return f"{root}{scope}/{resource.plural}"


class Children:
    """The objects that belong to one owner: created, listed and deleted through the API."""

    def __init__(self, api: ApiClient, owner: Object, component: str) -> None:
        self._api = api
        self._owner = owner
        self._component = component
        self.namespace: str = owner["metadata"]["namespace"]

    async def pods(self, labels: Mapping[str, str]) -> list[Object]:
        """The pods with these labels that belong to the owner, by name."""
        return await self.listed(core(self.namespace, "pods"), labels)

    async def listed(self, path: str, labels: Mapping[str, str]) -> list[Object]:
        selector = ",".join(f"{key}={value}" for key, value in labels.items())
        listed, _ = await self._api.list(path, labelSelector=selector)
        return [each for each in listed if self.has(each)]

    def has(self, found: Object) -> bool:
        """Whether an object belongs to the owner."""
        owners = found["metadata"].get("ownerReferences") or ()
        return self._owner["metadata"]["uid"] in [each["uid"] for each in owners]

    async def create(self, path: str, body: Object) -> Object | None:
        """None if it exists already."""
        metadata, owner = body["metadata"], self._owner
        metadata["ownerReferences"] = [
            {
                "apiVersion": owner["apiVersion"],
                "kind": owner["kind"],
                "name": owner["metadata"]["name"],
                "uid": owner["metadata"]["uid"],
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ]
        try:
            return await self._api.create(path, body)
        except ApiError as error:
            if error.code == 409:
                return None
            raise

    async def delete(self, path: str, policy: str = "") -> bool:
        """False if it is gone already."""
        try:
            await self._api.delete(path, policy=policy)
        except ApiError as error:
            if error.code == 404:
                return False
            raise
        return True

    async def write_status(self, path: str, status: Object) -> None:
        """Writes the status of the owner if it has changed. Raises ApiError 409 if the object was
        written in the meantime."""
        if status != (self._owner.get("status") or {}):
            await self._api.replace(f"{path}/status", {**self._owner, "status": status})

    async def tell(self, kind: str, reason: str, message: str) -> None:
        """Creates an Event on the owner, or counts up an equal one. `kind` is Normal or Warning."""
        about = self._owner["metadata"]
        words = f"{about['uid']} {kind} {reason} {message}"
        name = f"{about['name'][:200]}.{hashlib.sha256(words.encode()).hexdigest()[:16]}"
        path = core(self.namespace, "events")
        if told := await self._api.find(f"{path}/{name}"):
            again = {"count": told["count"] + 1, "lastTimestamp": now_text()}
            await self._api.merge_patch(f"{path}/{name}", again)
            return
        event = {
            "metadata": {"name": name},
            "involvedObject": {
                "kind": self._owner["kind"],
                "namespace": about["namespace"],
                "name": about["name"],
                "uid": about["uid"],
                "apiVersion": self._owner["apiVersion"],
            },
            "type": kind,
            "reason": reason,
            "message": message,
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "firstTimestamp": now_text(),
            "lastTimestamp": now_text(),
            "count": 1,
        }
        await self._api.create(path, event)


def set_condition(
    conditions: list[Object], type_: str, value: str, reason: str, message: str, moment: str = ""
) -> bool:
    """Sets a condition as most of Kubernetes does: the time is that of the last change of the
    value.

    A condition that was never True does not become False. Returns whether anything has changed.
    """
    new = {"type": type_, "status": value, "reason": reason, "message": message}
    new["lastTransitionTime"] = moment or now_text()
    for place, old in enumerate(conditions):
        if old["type"] == type_:
            if old["status"] == value:
                new["lastTransitionTime"] = old["lastTransitionTime"]
            conditions[place] = new
            return new != old
    if value == "True":
        conditions.append(new)
    return value == "True"


def phase_of(pod: Object) -> str:
    return str((pod.get("status") or {}).get("phase", "Pending"))


def has_ended(pod: Object) -> bool:
    return phase_of(pod) in ("Succeeded", "Failed")


def is_going(found: Object) -> bool:
    return "deletionTimestamp" in found["metadata"]
