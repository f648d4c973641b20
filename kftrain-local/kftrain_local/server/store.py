"""The objects of the embedded cluster, and the watches of them. In memory, for one event loop.

An object is never changed, only replaced. It is encoded once, and all lists and watches share its
bytes. Deletion is that of Kubernetes: pods have a grace period, finalizers delay it, and it
includes the objects that belong to the deleted one.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import uuid
from collections import Counter, deque
from collections.abc import Callable, Container
from datetime import datetime, timedelta, timezone
from typing import Any, NamedTuple

from kftrain_local.server.refusals import (
    already_exists,
    conflict,
    expired,
    not_found,
    precondition_failed,
)
from kftrain_local.server.resources import BATCH_JOBS, EVENTS, NAMESPACES, PODS, Resource
from kftrain_local.times import now_text, time_text

Object = dict[str, Any]
Matches = Callable[[Object], bool]

# Without vowels, like in Kubernetes: so names never contain words.
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
HISTORY = 20_000
_LONGEST_QUEUE = 10_000
_OF_SERVER = (
    *("uid", "resourceVersion", "generation", "namespace", "creationTimestamp"),
    *("deletionTimestamp", "deletionGracePeriodSeconds"),
)
_BEFORE = 10
"""Versions from before the first object, which no client can have seen."""
_FOREGROUND, _ORPHAN = "foregroundDeletion", "orphan"
_HELD_BY = {"Foreground": _FOREGROUND, "Orphan": _ORPHAN}
"""The finalizer by which a deletion with that propagation keeps the owner for a while."""
_DEFAULT_GRACE = 30


class Key(NamedTuple):
    resource: Resource
    namespace: str
    name: str


class Stored(NamedTuple):
    object: Object
    encoded: bytes


class Change:
    """One change. Its bytes are created when the first watch needs them."""

    __slots__ = ("_lines", "new", "old", "resource", "version")

    def __init__(
        self, version: int, resource: Resource, old: Stored | None, new: Stored | None
    ) -> None:
        self.version = version
        self.resource = resource
        self.old = old
        self.new = new
        self._lines: dict[str, bytes] = {}

    def seen_by(self, matches: Matches) -> str:
        """ADDED, MODIFIED or DELETED for a watch with that selector, "" if it sees nothing."""
        was = self.old is not None and matches(self.old.object)
        is_now = self.new is not None and matches(self.new.object)
        return {(0, 1): "ADDED", (1, 1): "MODIFIED", (1, 0): "DELETED"}.get((was, is_now), "")

    def object(self, type: str) -> Object:
        if type != "DELETED":
            assert self.new is not None
            return self.new.object
        assert self.old is not None
        metadata = {**self.old.object["metadata"], "resourceVersion": str(self.version)}
        return {**self.old.object, "metadata": metadata}

    def line(self, type: str) -> bytes:
        if type not in self._lines:
            stored = self.new if type != "DELETED" else None
            encoded = stored.encoded if stored else encode(self.object(type))
            self._lines[type] = b'{"type":"%s","object":%s}\n' % (type.encode(), encoded)
        return self._lines[type]


class Watch:
    """The changes that a client has not received yet."""

    def __init__(
        self, resource: Resource, namespace: str, matches: Matches, after: int = 0
    ) -> None:
        self.resource = resource
        self.namespace = namespace
        self._matches = matches
        self._after = after
        self._changes: deque[tuple[str, Change]] = deque()
        self._news = asyncio.Event()
        self.is_behind = False

    def tell(self, change: Change) -> None:
        if self.is_behind or change.version <= self._after:
            return
        if type_ := change.seen_by(self._matches):
            self._changes.append((type_, change))
            self._news.set()
        if len(self._changes) > _LONGEST_QUEUE:
            # Its client may never read again, so nothing is kept for it.
            self.is_behind = True
            self._changes.clear()

    async def next(self) -> list[tuple[str, Change]]:
        """All changes since the last call, at least one."""
        await self._news.wait()
        return self.so_far()

    def so_far(self) -> list[tuple[str, Change]]:
        """All changes since the last call, perhaps none."""
        self._news.clear()
        changes = [*self._changes]
        self._changes.clear()
        return changes


class Store:
    def __init__(self, history: int = HISTORY) -> None:
        self.version = _BEFORE
        self._objects: dict[Resource, dict[tuple[str, str], Stored]] = {}
        self._window: deque[Change] = deque(maxlen=history)
        self._watches: dict[Resource, set[Watch]] = {}
        self._by_uid: dict[str, Key] = {}
        self._dependents: dict[str, set[Key]] = {}
        self._population: Counter[str] = Counter()

    # ---- reading

    def find(self, key: Key) -> Object | None:
        stored = self._objects.get(key.resource, {}).get((key.namespace, key.name))
        return stored.object if stored else None

    def get(self, key: Key) -> Object:
        found = self.find(key)
        if found is None:
            raise not_found(key.resource, key.name)
        return found

    def listed(self, resource: Resource, namespace: str, matches: Matches) -> list[Stored]:
        """Sorted by name, like lists of Kubernetes."""
        found = {
            place: each
            for place, each in self._objects.get(resource, {}).items()
            if namespace in ("", place[0]) and matches(each.object)
        }
        return [found[place] for place in sorted(found)]

    def remembers(self, version: int) -> bool:
        """Whether all changes since then are still known."""
        oldest = self._window[0].version if self._window else self.version + 1
        return version >= oldest - 1

    def watch(self, resource: Resource, namespace: str, matches: Matches, version: int) -> Watch:
        """Starts at that version; 0: with all objects, as if they were new. Refusal 410."""
        if version and not self.remembers(version):
            # Kubernetes does not keep old versions of events itself, so its message differs for
            # them.
            of_events = "The resourceVersion for the provided watch is too old."
            text = f"too old resource version: {version} ({self.version})"
            raise expired(of_events if resource == EVENTS else text)
        watch = Watch(resource, namespace, matches, version)
        if version:
            past = [*self._window]
        else:
            stored = self.listed(resource, namespace, matches)
            past = [Change(self.version, resource, None, each) for each in stored]
        for change in past:
            self._tell(watch, change)
        self._watches.setdefault(resource, set()).add(watch)
        return watch

    def unwatch(self, watch: Watch) -> None:
        self._watches[watch.resource].discard(watch)

    # ---- writing

    def create(self, resource: Resource, namespace: str, given: Object) -> Object:
        """`given` was checked already. Adds the server's part of the metadata."""
        metadata = {key: value for key, value in given["metadata"].items() if value is not None}
        if "name" not in metadata:
            suffix = "".join(secrets.choice(_LETTERS) for _ in range(5))
            metadata["name"] = f"{metadata['generateName'][:58]}{suffix}"
        key = Key(resource, namespace, metadata["name"])
        if (there := self.find(key)) is not None:
            is_going = "deletionTimestamp" in there["metadata"]
            raise already_exists(resource, key.name, is_going=is_going)
        metadata |= {"uid": str(uuid.uuid4()), "creationTimestamp": now_text()}
        if resource.counts_generations:
            metadata["generation"] = 1
        if namespace:
            metadata["namespace"] = namespace
        metadata.pop("deletionTimestamp", None)
        return {**given, "metadata": metadata}

    def add(self, resource: Resource, made: Object) -> Object:
        """Stores what `create` has returned."""
        metadata = made["metadata"]
        key = Key(resource, metadata.get("namespace", ""), metadata["name"])
        self._by_uid[metadata["uid"]] = key
        self._population[key.namespace] += 1
        added = self._write(key, made)
        for reference in metadata.get("ownerReferences") or ():
            self._dependents.setdefault(reference["uid"], set()).add(key)
        if self._has_no_owner_left(metadata):
            asyncio.get_running_loop().call_soon(self._collect, key, metadata["uid"])
        return added

    def replace(self, key: Key, new: Object) -> Object:
        """The new version of an object, with the fields that only the server sets. Store it with
        `keep`."""
        old = self.get(key)["metadata"]
        if new["metadata"].get("resourceVersion") not in (None, old["resourceVersion"]):
            raise conflict(key.resource, key.name)
        metadata = {**new["metadata"], **{name: old.get(name) for name in _OF_SERVER}}
        metadata = {name: value for name, value in metadata.items() if value is not None}
        return {**new, "metadata": metadata}

    def keep(self, key: Key, new: Object) -> Object:
        """An object that is being deleted goes away when it has no finalizers."""
        old = self.get(key)
        if new == old:
            return old
        self._index_owners(key, old, new)
        if _is_to_go(new):
            return self._remove(key, new)
        return self._write(key, new)

    # ---- deletion

    def delete(self, key: Key, options: Object) -> Object:
        """Returns the object as it is afterwards, or its last version."""
        old = self.get(key)
        metadata = dict(old["metadata"])
        check_preconditions(key, metadata, options)
        # Only this kind orphans its objects by default.
        default = "Orphan" if key.resource == BATCH_JOBS else None
        policy = options.get("propagationPolicy", default)
        finalizers = [*(metadata.get("finalizers") or ())]
        if policy in _HELD_BY and _HELD_BY[policy] not in finalizers:
            metadata["finalizers"] = finalizers = [*finalizers, _HELD_BY[policy]]
        grace = _grace(key.resource, old, options)
        if grace < metadata.get("deletionGracePeriodSeconds", grace + 1):
            if key.resource.counts_generations and "deletionTimestamp" not in metadata:
                metadata["generation"] += 1
            ends = datetime.now(timezone.utc) + timedelta(seconds=grace)
            metadata["deletionTimestamp"] = time_text(ends)
            metadata["deletionGracePeriodSeconds"] = grace
        new = {**old, "metadata": metadata}
        if key.resource == NAMESPACES:
            new["status"] = {"phase": "Terminating"}
        elif _is_to_go(new):
            return self._remove(key, new)
        new = self._write(key, new) if new != old else old
        self._propagate(key, metadata["uid"], policy)
        return self.find(key) or new

    def _propagate(self, key: Key, uid: str, policy: str | None) -> None:
        if policy == "Orphan":
            asyncio.get_running_loop().call_soon(self._orphan, uid)
        if policy == "Foreground":
            for dependent in [*self._dependents.get(uid, ())]:
                self._take_along(dependent, uid)
            self._finish_foreground(uid)
        if key.resource == NAMESPACES:
            self._empty(key.name)

    def _take_along(self, key: Key, owner: str) -> None:
        """Deletes the objects that belong to `owner`, which waits for them."""
        if (found := self.find(key)) is None:
            return
        metadata = found["metadata"]
        if not self._has_no_owner_left(metadata):
            self._keep_owners(key, self._by_uid.keys() - {owner})
        elif _FOREGROUND not in (metadata.get("finalizers") or ()):
            self.delete(key, {"propagationPolicy": "Foreground"})
        elif self._owns(metadata["uid"], owner):  # in a circle, each would wait for the others
            self._dependents[owner].discard(key)

    def _owns(self, uid: str, other: str) -> bool:
        """Whether `other` belongs to it, directly or through others."""
        seen, left = {uid}, [uid]
        while left:
            keys = self._dependents.get(left.pop(), ())
            uids = {self.get(key)["metadata"]["uid"] for key in keys} - seen
            seen |= uids
            left += uids
        return other in seen

    def _remove(self, key: Key, last: Object) -> Object:
        stored = self._objects[key.resource].pop((key.namespace, key.name))
        uid = last["metadata"]["uid"]
        self.version += 1
        self._publish(Change(self.version, key.resource, Stored(last, stored.encoded), None))
        del self._by_uid[uid]
        self._population[key.namespace] -= 1
        self._index_owners(key, last, {"metadata": {}})
        for dependent in self._dependents.pop(uid, set()):
            if self.find(dependent) is not None:
                self._collect(dependent, self.get(dependent)["metadata"]["uid"])
        for reference in last["metadata"].get("ownerReferences") or ():
            self._finish_foreground(reference["uid"])
        self._finish_namespace(key.namespace)
        metadata = {**last["metadata"], "resourceVersion": str(self.version)}
        return {**last, "metadata": metadata}

    def _collect(self, key: Key, uid: str) -> None:
        """Garbage collection: deletes objects all of whose owners are gone."""
        found = self.find(key)
        if found is None or found["metadata"]["uid"] != uid:
            return
        if self._has_no_owner_left(found["metadata"]):
            self.delete(key, {"propagationPolicy": "Background"})
        else:
            self._keep_owners(key, self._by_uid)

    def _has_no_owner_left(self, metadata: Object) -> bool:
        references = metadata.get("ownerReferences") or ()
        return bool(references) and not any(self._stays(each["uid"]) for each in references)

    def _stays(self, uid: str) -> bool:
        """False for an owner that waits for its objects: those that are added then have to go,
        too."""
        key = self._by_uid.get(uid)
        return key is not None and _FOREGROUND not in (
            self.get(key)["metadata"].get("finalizers") or ()
        )

    def _keep_owners(self, key: Key, uids: Container[str]) -> None:
        """Keeps only these owners of an object."""
        found = self.get(key)
        metadata = found["metadata"]
        left = [each for each in metadata["ownerReferences"] if each["uid"] in uids]
        self.keep(key, {**found, "metadata": {**metadata, "ownerReferences": left}})

    def _finish_foreground(self, uid: str) -> None:
        if not self._dependents.get(uid):
            self._release(uid, _FOREGROUND)

    def _orphan(self, uid: str) -> None:
        for key in [*self._dependents.get(uid, ())]:
            self._keep_owners(key, self._by_uid.keys() - {uid})
        self._release(uid, _ORPHAN)

    def _release(self, uid: str, finalizer: str) -> None:
        if (key := self._by_uid.get(uid)) is None:
            return
        found = self.get(key)
        finalizers = found["metadata"].get("finalizers") or []
        if finalizer in finalizers:
            left = [name for name in finalizers if name != finalizer]
            self.keep(key, {**found, "metadata": {**found["metadata"], "finalizers": left}})

    def _empty(self, namespace: str) -> None:
        for resource, objects in self._objects.items():
            for place in [*objects]:
                if place[0] == namespace and place in objects:
                    self.delete(Key(resource, *place), {})
        self._finish_namespace(namespace)

    def _finish_namespace(self, name: str) -> None:
        key = Key(NAMESPACES, "", name)
        found = self.find(key)
        if found and not self._population[name] and "deletionTimestamp" in found["metadata"]:
            self._remove(key, found)

    # ---- the only place that changes anything

    def _write(self, key: Key, new: Object) -> Object:
        self.version += 1
        # Empty fields are omitted, like in Kubernetes.
        metadata = {name: value for name, value in new["metadata"].items() if value not in ([], {})}
        metadata["resourceVersion"] = str(self.version)
        new = {**head_of(key.resource), **new, "metadata": metadata}
        objects = self._objects.setdefault(key.resource, {})
        old = objects.get((key.namespace, key.name))
        stored = objects[key.namespace, key.name] = Stored(new, encode(new))
        self._publish(Change(self.version, key.resource, old, stored))
        return new

    def _publish(self, change: Change) -> None:
        self._window.append(change)
        for watch in self._watches.get(change.resource, ()):
            self._tell(watch, change)

    @staticmethod
    def _tell(watch: Watch, change: Change) -> None:
        stored = change.new or change.old
        assert stored is not None
        namespace = stored.object["metadata"].get("namespace", "")
        if change.resource == watch.resource and watch.namespace in ("", namespace):
            watch.tell(change)

    def _index_owners(self, key: Key, old: Object, new: Object) -> None:
        def owners(found: Object) -> set[str]:
            return {each["uid"] for each in found["metadata"].get("ownerReferences") or ()}

        for uid in owners(old) - owners(new):
            self._dependents.get(uid, set()).discard(key)
        for uid in owners(new) - owners(old):
            self._dependents.setdefault(uid, set()).add(key)


def head_of(resource: Resource) -> Object:
    """The first fields of each object, also when it is encoded."""
    return {"kind": resource.kind, "apiVersion": resource.api_version}


def encode(found: Object) -> bytes:
    return json.dumps(found, separators=(",", ":")).encode()


def _is_to_go(found: Object) -> bool:
    """Whether it is being deleted, and no finalizer and no grace period delays that."""
    metadata = found["metadata"]
    grace = metadata.get("deletionGracePeriodSeconds")
    return "deletionTimestamp" in metadata and not metadata.get("finalizers") and not grace


def check_preconditions(key: Key, metadata: Object, options: Object) -> None:
    """Checks the preconditions of a deletion. Refusal 409."""
    wanted = options.get("preconditions") or {}
    for field, words, fate in (
        ("uid", "UID", "deleted and then recreated"),
        ("resourceVersion", "ResourceVersion", "modified"),
    ):
        if wanted.get(field) not in (None, metadata[field]):
            text = (
                f"the {words} in the precondition ({wanted[field]}) does not match the {words} in "
                f"record ({metadata[field]}). The object might have been {fate}"
            )
            raise precondition_failed(key.resource, key.name, text)


def _grace(resource: Resource, found: Object, options: Object) -> int:
    """How many seconds a pod has to end. The agent that runs it then deletes it without a grace
    period."""
    if resource != PODS or not found["spec"].get("nodeName"):
        return 0
    if found.get("status", {}).get("phase") in ("Succeeded", "Failed"):
        return 0
    grace = options.get("gracePeriodSeconds")
    if grace is None:
        grace = found["spec"].get("terminationGracePeriodSeconds", _DEFAULT_GRACE)
    return int(grace)
