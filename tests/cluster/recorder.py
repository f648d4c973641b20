"""Records what happens to a job: each state of the job, of its pods and of its Workload, and each
event, in their order.

A recording is a file of JSON lines. The first one describes it; each other line is one change. The
first state of an object is written as a whole, each later one as a merge patch to it. Names that
are different each time are replaced (uids, the namespace, suffixes of generated names, the node).
Times count from the job's creation, which is set to 2026-01-01T00:00:00Z.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, NamedTuple

from tests.control_plane.api import Api, Manifest, Watch

RECORDINGS = Path(__file__).parents[1] / "recordings"

_PATIENCE = 30.0
_CREATION = datetime(2026, 1, 1, tzinfo=timezone.utc)
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_NODE = re.compile(r"\bnode-[0-9a-f]{8}\b")
_TOLD_ONCE = "ImagesAreNotRun"  # the agent writes these for whichever pod is its first
_HASH = 5
_NOISE = ("managedFields", "resourceVersion", "selfLink")


class Change(NamedTuple):
    what: str
    """job, pod, workload or event"""
    type: str
    """ADDED, MODIFIED or DELETED"""
    object: Manifest
    time: float


class Recorder:
    """Follows the collections at `paths` from its creation on."""

    def __init__(self, api: Api, namespace: str, paths: Mapping[str, str]) -> None:
        self.verdict = ""
        """The result of the job as the scenario knows it; "" while it is unfinished."""
        self._api = api
        self._namespace = namespace
        self._paths = paths
        self._changes: list[Change] = []
        self._alive: dict[str, dict[str, str]] = {what: {} for what in paths}
        self._arrived = threading.Condition()
        self._watches: list[Watch] = []
        self._threads: list[threading.Thread] = []
        for what, path in paths.items():
            version = api.call("GET", path).required(path)["metadata"]["resourceVersion"]
            watch = api.watch(path, resourceVersion=version)
            assert watch.code == 200
            thread = threading.Thread(target=self._follow, args=(what, watch), daemon=True)
            thread.start()
            self._watches.append(watch)
            self._threads.append(thread)

    def _follow(self, what: str, watch: Watch) -> None:
        with watch:
            for event in watch:
                self._take(what, event)

    def _take(self, what: str, event: Manifest) -> None:
        if event["object"].get("reason") == _TOLD_ONCE:
            return
        assert event["type"] in ("ADDED", "MODIFIED", "DELETED"), event
        metadata = event["object"]["metadata"]
        change = Change(what, event["type"], event["object"], time.time())
        with self._arrived:
            self._changes.append(change)
            if event["type"] == "DELETED":
                self._alive[what].pop(metadata["uid"], None)
            else:
                self._alive[what][metadata["uid"]] = metadata["resourceVersion"]
            self._arrived.notify_all()

    def stop(self) -> None:
        """Stops when it has seen everything that the server has now."""
        try:
            for what, path in self._paths.items():
                self._wait_for(what, path)
        finally:
            for watch in self._watches:
                watch.end()
            for thread in self._threads:
                thread.join(_PATIENCE)

    def _wait_for(self, what: str, path: str) -> None:
        listed = self._api.call("GET", path).required(path)
        version = int(listed["metadata"]["resourceVersion"])
        wanted = {
            item["metadata"]["uid"]: item["metadata"]["resourceVersion"] for item in listed["items"]
        }

        def seen() -> bool:
            now = self._alive[what]
            # Changes since the list was created appear in a later state.
            return all(int(now.get(uid, version)) >= int(wanted[uid]) for uid in wanted) and all(
                uid in wanted or int(now[uid]) > version for uid in now
            )

        with self._arrived:
            assert self._arrived.wait_for(seen, _PATIENCE), f"the watch of {path} is behind"

    def lines(self, scenario: str) -> list[str]:
        """The recording; empty if the job was never created."""
        changes = sorted(
            self._changes, key=lambda change: int(change.object["metadata"]["resourceVersion"])
        )
        job = next((change.object for change in changes if change.what == "job"), None)
        if job is None:
            return []
        normal = _Normal(self._namespace, job, changes)
        head = {
            "scenario": scenario,
            "apiVersion": job["apiVersion"],
            "kind": job["kind"],
            "verdict": self.verdict,
        }
        return [json.dumps(line) for line in (head, *_lines(changes, normal))]


class _Normal:
    """Removes from objects everything that differs from run to run."""

    def __init__(self, namespace: str, job: Manifest, changes: list[Change]) -> None:
        self._created = _read(job["metadata"]["creationTimestamp"])
        self._words = {namespace: "ns"}
        self._uids: dict[str, str] = {}
        for change in changes:
            metadata = change.object["metadata"]
            prefix = metadata.get("generateName")
            if change.what == "workload":  # it ends with a hash
                prefix = metadata["name"][:-_HASH]
            if prefix and metadata["name"] not in self._words:
                count = sum(word.startswith(prefix) for word in self._words)
                self._words[metadata["name"]] = f"{prefix}{_suffix(count)}"
        ordered = sorted(self._words, key=len, reverse=True)
        words = "|".join(re.escape(word) for word in ordered)
        # The kubelet names a pod NAME_NAMESPACE(UID).
        self._word = re.compile(rf"(?<![a-zA-Z0-9-])(?:{words})(?![a-zA-Z0-9-])")

    def seconds(self, moment: float) -> float:
        return round(moment - self._created.timestamp(), 1)

    def value(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {self._text(key): self.value(v) for key, v in value.items() if key not in _NOISE}
        if isinstance(value, list):
            return [self.value(item) for item in value]
        return self._text(value) if isinstance(value, str) else value

    def _text(self, text: str) -> str:
        if _TIME.fullmatch(text):
            return self._time(text)
        text = _UID.sub(lambda found: self._uid(found.group()), text)
        text = self._word.sub(lambda found: self._words[found.group()], text)
        return _NODE.sub("node-1", text)

    def _uid(self, uid: str) -> str:
        return self._uids.setdefault(uid, f"uid-{len(self._uids) + 1}")

    def _time(self, text: str) -> str:
        moved = _CREATION + (_read(text).replace(microsecond=0) - self._created)
        plain = moved.strftime("%Y-%m-%dT%H:%M:%S")
        return f"{plain}.000000Z" if "." in text else f"{plain}Z"


def _read(text: str) -> datetime:
    plain, _, fraction = text.rstrip("Z").partition(".")
    moment = datetime.strptime(plain, "%Y-%m-%dT%H:%M:%S").replace(tzinfo=timezone.utc)
    return moment + timedelta(seconds=float(f"0.{fraction or 0}"))


def _suffix(number: int) -> str:
    """Five characters, as Kubernetes appends them."""
    return "".join(chr(ord("a") + number // 26**place % 26) for place in (4, 3, 2, 1, 0))


def _lines(changes: list[Change], normal: _Normal) -> Iterator[Manifest]:
    known: dict[tuple[str, str], Manifest] = {}
    names: dict[tuple[str, str], str] = {}
    for change in changes:
        key = (change.what, change.object["metadata"]["uid"])
        now = normal.value(change.object)
        name = names.setdefault(key, _name(change.what, now, len(names)))
        if change.what == "event":
            now["metadata"] = {"name": name}
        line = {"at": normal.seconds(change.time), change.what: name, "type": change.type}
        if key in known:
            line["patch"] = difference(known[key], now)
        else:
            line["object"] = now
        known[key] = now
        yield line


def _name(what: str, found: Manifest, number: int) -> str:
    return f"event-{number}" if what == "event" else str(found["metadata"]["name"])


def difference(old: Manifest, new: Manifest) -> Manifest:
    """The merge patch (RFC 7386) that turns `old` into `new`."""
    patch: Manifest = dict.fromkeys(old.keys() - new.keys())
    for key, value in new.items():
        before = old.get(key)
        if isinstance(before, dict) and isinstance(value, dict):
            if inner := difference(before, value):
                patch[key] = inner
        elif before != value or key not in old:
            patch[key] = value
    return patch
