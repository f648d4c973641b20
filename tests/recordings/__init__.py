"""What was seen of jobs on a real control plane: recordings, and the one reader of them.

Made by `make recordings` (tests/cluster/recorder.py says what stands in a file); replayed by
tests/unit/test_recordings.py. The text beside a recording is the report on the job at its end.
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
    """All that could be known at one moment."""

    now: datetime
    job: Object | None
    """None once it is deleted."""
    pods: list[Object]
    """Those that are gone, too, as they were last seen."""
    events: list[Object]


class Recording(NamedTuple):
    name: str
    scenario: str
    api_version: str
    kind: str
    verdict: str
    """Succeeded or Failed, "" for a job that was left alive or was deleted."""
    changes: list[Object]

    def views(self) -> Iterator[View]:
        """One after each change since the job was created."""
        known: dict[str, dict[str, Object]] = {"job": {}, "pod": {}, "event": {}}
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
            moment = _CREATION + timedelta(seconds=change["at"])
            yield View(moment, job, [*known["pod"].values()], [*known["event"].values()])


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
    """A merge patch (RFC 7386), applied."""
    new = {key: value for key, value in old.items() if patch.get(key, value) is not None}
    for key, value in patch.items():
        if isinstance(value, dict):
            before = new.get(key)
            new[key] = patched(before if isinstance(before, dict) else {}, value)
        elif value is not None:
            new[key] = value
    return new
