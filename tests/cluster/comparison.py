"""Compares what a job showed on a target with the recordings of the real one.

Not line by line, since the observation of a job depends on its speed. The verdict of the scenario
has to be the same, and everything that was observed must occur in the recordings for some job of
that kind: each condition, each event, and each change from one set of true conditions to another,
in one step or in several, since fast changes are seen as one.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

from tests.recordings import Recording, parse, recordings

Word = tuple[str, ...]


def unlike(lines: list[str], name: str) -> list[str]:
    """The observations (lines of a recorder) that do not occur in the recording of that name."""
    seen = parse(name, lines)
    real = next(each for each in recordings() if each.name == name)
    faults = [f"the verdict is {seen.verdict!r}"] if seen.verdict != real.verdict else []
    known = _known(seen.api_version, seen.kind)
    new = {*_words(seen)} - known
    faults += sorted(" ".join(word) for word in new if word[0] != "change")
    changes = [(word[1], word[2]) for word in new if word[0] == "change"]
    return faults + [f"from {a} to {b}" for a, b in changes if b not in _reachable(known, a)]


def _reachable(known: frozenset[Word], start: str) -> set[str]:
    steps = [(word[1], word[2]) for word in known if word[0] == "change"]
    found, new = set[str](), {start}
    while new := {after for before, after in steps if before in new} - found:
        found |= new
    return found


@functools.cache
def _known(api_version: str, kind: str) -> frozenset[Word]:
    of_kind = [
        each
        for each in recordings()
        if (each.api_version, each.kind) == (api_version, kind) and not each.is_queued
    ]
    return frozenset(word for each in of_kind for word in _words(each))


def _words(recording: Recording) -> Iterator[Word]:
    before: frozenset[str] = frozenset()
    for view in recording.views():
        conditions = ((view.job or {}).get("status") or {}).get("conditions") or []
        for each in conditions:
            yield "condition", each["type"], each["status"], each.get("reason", "")
        now = frozenset(each["type"] for each in conditions if each["status"] == "True")
        if now != before and view.job is not None:
            yield "change", _names(before), _names(now)
            before = now
        for event in view.events:
            yield "event", event["involvedObject"]["kind"], event["type"], event["reason"]


def _names(conditions: frozenset[str]) -> str:
    return ",".join(sorted(conditions)) or "nothing"
