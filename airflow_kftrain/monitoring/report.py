"""Writes the report at the end of a task's log, from the evidence.

What went wrong comes first, then what supports it. Every part is limited in lines and characters,
since the report is part of an event. The same evidence always gives the same text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from airflow_kftrain.job_state import JobState, Phase, read_text
from airflow_kftrain.kinds import JobKind
from airflow_kftrain.monitoring.decisions import Decision, Verdict, judge
from airflow_kftrain.monitoring.events import Event, read_event, whole_line
from airflow_kftrain.monitoring.failures import Failure, Fault, LogKey, Weight, find_failures
from airflow_kftrain.monitoring.pods import PodState
from airflow_kftrain.monitoring.text import (
    QUOTED,
    both_ends,
    last_lines,
    listed,
    moment,
    one_line,
    place,
)

_LOG_LINES = 20
_LOG_SIZE = 2000
_LOG_TITLE = "The end of its log:"
_MOST_FAILURES = 8
_MOST_EVENTS = 8

_NO_LOGS: Mapping[LogKey, str] = MappingProxyType({})
_NO_WORDS: Mapping[str, str] = MappingProxyType({})


def write_report(
    kind: JobKind,
    state: JobState,
    pods: Sequence[PodState],
    *,
    decision: Decision | None = None,
    logs: Mapping[LogKey, str] = _NO_LOGS,
    last_words: Mapping[str, str] = _NO_WORDS,
    events: Sequence[object] = (),
) -> str:
    """`decision` is required if the verdict is ours and not the operator's; `logs` are the ends of
    logs, `last_words` those of a silent job, by replica."""
    decision = decision or judge(kind, state, pods)
    failures = _failures_to_tell(decision, pods)
    lines = [
        decision.words,
        *_first_failure(failures, logs),
        *_other_failures(failures),
        *_last_words(last_words),
        *_no_evidence(kind, state, pods),
        *_events(state, events),
        *_condition(kind, state),
        *_retry_advice(decision),
    ]
    return "\n".join(lines)


def without_quoted(tail: str, report: str) -> str:
    """The end of a log, without its last lines if the report quotes them."""
    _, _, after = report.partition(f"  {_LOG_TITLE}\n")
    quoted = []
    for line in after.split("\n"):
        if not line.startswith(QUOTED):
            break
        quoted.append(line.removeprefix(QUOTED))
    quoted = quoted[1:] if quoted[:1] == ["..."] else quoted
    lines = tail.split("\n")
    if quoted[-len(lines) :] == lines:
        return ""
    if not quoted or lines[-len(quoted) :] != quoted:
        return tail
    before = lines[: -len(quoted)]
    return "" if before == ["..."] else "\n".join(before)


def _failures_to_tell(decision: Decision, pods: Sequence[PodState]) -> list[Failure]:
    """If the job did not fail, only real failures: operators end the remaining pods after a
    success, at a suspension, and when a job is made smaller."""
    failures = find_failures(pods)
    if decision.verdict in (Verdict.WAIT, Verdict.SUCCEEDED):
        return [failure for failure in failures if failure.weight < Weight.CONSEQUENCE]
    return failures


def _first_failure(failures: Sequence[Failure], logs: Mapping[LogKey, str]) -> Iterator[str]:
    if not failures:
        return
    first = failures[0]
    yield "First failure:"
    yield f"  {_failure_line(first)}"
    # It is often the end of the log itself (FallbackToLogsOnError), and then need not be shown
    # twice.
    log = read_text(logs.get(first.log))
    if first.message.strip() and first.message.strip() not in log:
        title = "Its termination message:" if first.container else "Kubernetes says:"
        yield from _quoted(title, first.message)
    if log.strip():
        yield from _quoted(_LOG_TITLE, log)


def _quoted(title: str, text: str) -> Iterator[str]:
    yield f"  {title}"
    for line in last_lines(text, _LOG_LINES, _LOG_SIZE):
        yield f"{QUOTED}{line}"


def _other_failures(failures: Sequence[Failure]) -> Iterator[str]:
    others = failures[1:]
    if not others:
        return
    yield "Other failures:"
    for failure in others[:_MOST_FAILURES]:
        yield f"  {_failure_line(failure)}"
    if len(others) > _MOST_FAILURES:
        yield f"  and {len(others) - _MOST_FAILURES} more"


def _last_words(said: Mapping[str, str]) -> Iterator[str]:
    for replica, text in said.items():
        yield f"{replica}:"
        if text.strip():
            yield from _quoted(_LOG_TITLE, text)
        else:
            yield "  Its log is empty."


def _failure_line(failure: Failure) -> str:
    """The pod comes last, since its name is long and says little."""
    when = f", at {moment(failure.finished)}" if failure.finished else ""
    pod = place(f"pod {failure.pod}", failure.container)
    return one_line(f"{failure.replica}: {failure.what}{when}") + f" ({pod})"


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
        yield "Retry: it cannot help until the cause is fixed."
    elif decision.fault is Fault.SYSTEM:
        yield "Retry: it may help, since the cause lies in the cluster."
    elif decision.fault is None and decision.verdict is Verdict.TIMED_OUT:
        yield (
            "Retry: it has the same time again, which helps only if the training continues from a "
            "checkpoint, or starts sooner."
        )
    elif decision.fault is None:
        yield "Retry: it helps only if the cause passes. Where the cause lies is not known."
    else:
        yield "Retry: the cause lies in the job, so a retry helps only if the cause was temporary."


# Events of type Normal that matter all the same.
_TELLING = frozenset({"ExitedWithCode", "Evicted", "Preempted", "TaintManagerEviction"})
# A pod that is still being deleted is recreated a moment later, and exit code 0 is no news.
# training-operator reports objects that it tries to create twice, in most MPIJobs, even healthy
# ones.
_NOISE = re.compile(
    r"object is being deleted|^DNSConfigForming:|^ExitedWithCode: .* exited with code 0$"
    r'|pod created failed: pods "[^"]*" already exists$|^FailedCreatePod: Created worker pod: ?$'
)
_UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def _events(state: JobState, events: Sequence[object]) -> Iterator[str]:
    """The latest events that matter, each message once, even if it is about many pods."""
    same: dict[tuple[str, str], list[Event]] = {}
    for event in map(read_event, events):
        if _matters(event, state):
            same.setdefault(_without_names(event), []).append(event)
    if not same:
        return
    groups = sorted(same.values(), key=_newest_of)
    yield "Events:"
    if len(groups) > _MOST_EVENTS:
        yield f"  ({len(groups) - _MOST_EVENTS} older events omitted)"
    for group in groups[-_MOST_EVENTS:]:
        yield f"  {_event_line(group)}"


def _matters(event: Event, state: JobState) -> bool:
    if not event.is_warning and event.reason not in _TELLING:
        return False
    if state.message and event.message == whole_line(state.message):
        return False
    return not _NOISE.search(f"{event.reason}: {event.message}")


def _without_names(event: Event) -> tuple[str, str]:
    message = event.message.replace(event.name, "") if event.name else event.message
    return event.reason, _UID.sub("", message)


def _newest_of(group: Sequence[Event]) -> tuple[Any, ...]:
    newest = max(group, key=lambda event: (event.time, event.about, event.message))
    return newest.time, newest.reason, newest.message, newest.about


def _event_line(group: Sequence[Event]) -> str:
    group = sorted(group, key=lambda event: (event.about, event.time, event.message))
    about = listed(list(dict.fromkeys(event.about for event in group if event.about)))
    count = sum(event.seen for event in group)
    times = f"{count} times" if count > 1 else ""
    where = ", ".join(text for text in (about, times) if text)
    return both_ends(f"{group[0].reason}{f' ({where})' if where else ''}: {group[0].message}")
