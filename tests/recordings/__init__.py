"""Recordings of jobs on a real control plane, and their only reader.

`make recordings` writes them (tests/cluster/recorder.py describes the files), and
tests/unit/test_recordings.py replays them. The text next to a recording is the report on the job at
its end.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).parent

_CREATION = datetime(2026, 1, 1, tzinfo=timezone.utc)

Object = dict[str, Any]


class View(NamedTuple):
    """Everything that could be known at one moment."""

    now: datetime
    job: Object | None
    """None once it is deleted."""
    pods: list[Object]
    """Including those that are gone, as they were seen last."""
    events: list[Object]
    workloads: list[Object]
    """Those that Kueue has at this moment."""


class Recording(NamedTuple):
    name: str
    scenario: str
    api_version: str
    kind: str
    verdict: str
    """Succeeded or Failed; "" for a job that was left unfinished or was deleted."""
    changes: list[Object]

    @property
    def is_queued(self) -> bool:
        """Whether Kueue was there."""
        return any("workload" in change for change in self.changes)

    def views(self) -> Iterator[View]:
        """One view after each change since the job was created."""
        known: dict[str, dict[str, Object]] = {"job": {}, "pod": {}, "event": {}, "workload": {}}
        job: Object | None = None
        for change in self.changes:
            what = next(key for key in known if key in change)
            name = change[what]
            if "object" in change:
                now = change["object"]
            else:
                now = patched(known[what][name], change["patch"])
            known[what][name] = now
            if what == "job":
                job = None if change["type"] == "DELETED" else now
            if what == "workload" and change["type"] == "DELETED":
                del known[what][name]
            moment = _CREATION + timedelta(seconds=change["at"])
            others = ([*known[each].values()] for each in ("pod", "event", "workload"))
            yield View(moment, job, *others)


def read(file: Path) -> Recording:
    return parse(file.stem, file.read_text(encoding="utf-8").splitlines())


def parse(name: str, lines: list[str]) -> Recording:
    head, *changes = (json.loads(line) for line in lines)
    words = (head[key] for key in ("scenario", "apiVersion", "kind", "verdict"))
    return Recording(name, *words, changes)


@functools.cache
def recordings() -> tuple[Recording, ...]:
    return tuple(read(file) for file in sorted(FOLDER.glob("*.jsonl")))


def patched(old: Object, patch: Object) -> Object:
    """Applies a merge patch (RFC 7386)."""
    new = {key: value for key, value in old.items() if patch.get(key, value) is not None}
    for key, value in patch.items():
        if isinstance(value, dict):
            before = new.get(key)
            new[key] = patched(before if isinstance(before, dict) else {}, value)
        elif value is not None:
            new[key] = value
    return new
