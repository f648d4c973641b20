"""The report at the end of a task's log and in its exception: evidence -> a compact text.

What went wrong first, then what supports it. Every part is bounded, in lines and in characters,
since it travels in an event, and the same evidence always gives the same text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from types import MappingProxyType
from typing import Any, NamedTuple

from airflow_kftrain.job_state import (
    JobState,
    Phase,
    read_mapping,
    read_number,
    read_text,
    read_time,
)
from airflow_kftrain.kinds import JobKind
from airflow_kftrain.monitoring.decisions import Decision, Verdict, judge
from airflow_kftrain.monitoring.failures import Failure, Fault, Weight, find_failures
from airflow_kftrain.monitoring.pods import PodState
from airflow_kftrain.monitoring.text import both_ends, last_lines, listed, moment, one_line, place

_LOG_LINES = 20
_LOG_SIZE = 2000
_MOST_FAILURES = 8
_MOST_EVENTS = 8
_LONGEST_MESSAGE = 2000

_NO_LOGS: Mapping[str, str] = MappingProxyType({})


def write_report(
    kind: JobKind,
    state: JobState,
    pods: Sequence[PodState],
    *,
    decision: Decision | None = None,
    logs: Mapping[str, str] = _NO_LOGS,
    events: Sequence[object] = (),
) -> str:
    """`decision` is needed where the verdict is ours; `logs` are tails by the pods' names."""
    decision = decision or judge(kind, state, pods)
    failures = _failures_to_tell(decision, pods)
    lines = [
        decision.words,
        *_first_failure(failures, logs),
        *_other_failures(failures),
        *_no_evidence(kind, state, pods),
        *_events(state, events),
        *_condition(kind, state),
        *_retry_advice(decision),
    ]
    return "\n".join(lines)


def _failures_to_tell(decision: Decision, pods: Sequence[PodState]) -> list[Failure]:
    """Of a job that did not fail only what really did: operators end the pods that are left over
    at a success, at a suspension, and when a job is made smaller."""
    failures = find_failures(pods)
    if decision.verdict in (Verdict.WAIT, Verdict.SUCCEEDED):
        return [failure for failure in failures if failure.weight < Weight.CONSEQUENCE]
    return failures


def _first_failure(failures: Sequence[Failure], logs: Mapping[str, str]) -> Iterator[str]:
    if not failures:
        return
    first = failures[0]
    yield "First failure:"
    yield f"  {_failure_line(first)}"
    # Often the end of the log itself (FallbackToLogsOnError), and then not worth saying twice.
    log = read_text(logs.get(first.pod))
    if first.message.strip() and first.message.strip() not in log:
        title = "Its last words:" if first.container else "Kubernetes says:"
        yield from _quoted(title, first.message)
    if log.strip():
        yield from _quoted("The end of its log:", log)


def _quoted(title: str, text: str) -> Iterator[str]:
    yield f"  {title}"
    for line in last_lines(text, _LOG_LINES, _LOG_SIZE):
        yield f"    {line}"


def _other_failures(failures: Sequence[Failure]) -> Iterator[str]:
    others = failures[1:]
    if not others:
        return
    yield "Other failures:"
    for failure in others[:_MOST_FAILURES]:
        yield f"  {_failure_line(failure)}"
    if len(others) > _MOST_FAILURES:
        yield f"  and {len(others) - _MOST_FAILURES} more"


def _failure_line(failure: Failure) -> str:
    when = f", at {moment(failure.finished)}" if failure.finished else ""
    where = place(failure.replica, failure.pod, failure.container)
    return one_line(f"{where}: {failure.what}{when}")


def _no_evidence(kind: JobKind, state: JobState, pods: Sequence[PodState]) -> Iterator[str]:
    if not pods and state.phase is Phase.FAILED:
        yield f"No pod could be read. {kind.leaves}"


def _condition(kind: JobKind, state: JobState) -> Iterator[str]:
    said = ": ".join(one_line(text) for text in (state.reason, state.message) if text)
    if said:
        yield f"{kind.kind} {state.phase.value}: {said}"


def _retry_advice(decision: Decision) -> Iterator[str]:
    if decision.verdict in (Verdict.WAIT, Verdict.SUCCEEDED):
        return
    if not decision.retryable:
        yield "Retry: it cannot help before the cause is mended."
    elif decision.fault is Fault.SYSTEM:
        yield "Retry: it may well help, the cluster is at fault and not the job."
    else:
        yield "Retry: it helps only if the cause was a passing one, the fault lies in the job."


class _Event(NamedTuple):
    reason: str
    message: str
    about: str
    """Kind and name of what it is about."""
    name: str
    is_warning: bool
    seen: int
    """How many times."""
    time: datetime


# Normal by their type, and yet a part of the story.
_TELLING = frozenset({"ExitedWithCode", "Evicted", "Preempted", "TaintManagerEviction"})
# A pod that is still being deleted is made anew a moment later; an exit with 0 is no news. What
# training-operator creates twice is there: it tells so of most MPIJobs, healthy ones among them.
_NOISE = re.compile(
    r"object is being deleted|^DNSConfigForming:|^ExitedWithCode: .* exited with code 0$"
    r'|pod created failed: pods "[^"]*" already exists$|^FailedCreatePod: Created worker pod: ?$'
)
_UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_LONG_AGO = datetime.min.replace(tzinfo=timezone.utc)


def _events(state: JobState, events: Sequence[object]) -> Iterator[str]:
    """The latest of those that matter, each message once, however many pods it is about."""
    same: dict[tuple[str, str], list[_Event]] = {}
    for event in map(_read_event, events):
        if _matters(event, state):
            same.setdefault(_without_names(event), []).append(event)
    if not same:
        return
    groups = sorted(same.values(), key=_newest_of)
    yield "Events:"
    if len(groups) > _MOST_EVENTS:
        yield f"  ({len(groups) - _MOST_EVENTS} older ones left out)"
    for group in groups[-_MOST_EVENTS:]:
        yield f"  {_event_line(group)}"


def _read_event(event: object) -> _Event:
    """Either API's event. The scheduler leaves `count` and `lastTimestamp` null."""
    root = read_mapping(event)
    series = read_mapping(root.get("series"))
    about = read_mapping(root.get("involvedObject")) or read_mapping(root.get("regarding"))
    times = (
        series.get("lastObservedTime"),
        root.get("lastTimestamp"),
        root.get("deprecatedLastTimestamp"),
        root.get("eventTime"),
        root.get("firstTimestamp"),
        read_mapping(root.get("metadata")).get("creationTimestamp"),
    )
    counts = (series.get("count"), root.get("count"), root.get("deprecatedCount"))
    name = read_text(about.get("name"))
    return _Event(
        reason=one_line(read_text(root.get("reason"))),
        message=_message(read_text(root.get("message")) or read_text(root.get("note"))),
        about=f"{read_text(about.get('kind'))} {name}".strip(),
        name=name,
        is_warning=root.get("type") == "Warning",
        seen=next((number for number in map(read_number, counts) if number), 1),
        time=next((time for time in map(read_time, times) if time), _LONG_AGO),
    )


def _message(text: str) -> str:
    """Whole as far as it is of use; it is cut where it is shown."""
    return one_line(text, _LONGEST_MESSAGE)


def _matters(event: _Event, state: JobState) -> bool:
    if not event.is_warning and event.reason not in _TELLING:
        return False
    if state.message and event.message == _message(state.message):
        return False
    return not _NOISE.search(f"{event.reason}: {event.message}")


def _without_names(event: _Event) -> tuple[str, str]:
    message = event.message.replace(event.name, "") if event.name else event.message
    return event.reason, _UID.sub("", message)


def _newest_of(group: Sequence[_Event]) -> tuple[Any, ...]:
    newest = max(group, key=lambda event: (event.time, event.about, event.message))
    return newest.time, newest.reason, newest.message, newest.about


def _event_line(group: Sequence[_Event]) -> str:
    group = sorted(group, key=lambda event: (event.about, event.time, event.message))
    about = listed(list(dict.fromkeys(event.about for event in group if event.about)))
    count = sum(event.seen for event in group)
    times = f"{count} times" if count > 1 else ""
    where = ", ".join(text for text in (about, times) if text)
    return both_ends(f"{group[0].reason}{f' ({where})' if where else ''}: {group[0].message}")
