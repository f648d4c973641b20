"""What crosses from the worker to the triggerer and back: orders to watch, and how jobs ended.

Both are stored as JSON, in plain text, and may be read by another version of this package than
wrote them: reading takes what it knows, has a default for what is missing, and never raises.
Orders hold names and ids only.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from enum import Enum
from typing import Any, NamedTuple

from airflow_kftrain.job_state import (
    Phase,
    read_mapping,
    read_mappings,
    read_number,
    read_text,
    read_time,
)
from airflow_kftrain.kinds import JobKind, JobReference, find_kind
from airflow_kftrain.monitoring.decisions import Verdict
from airflow_kftrain.monitoring.failures import Fault
from airflow_kftrain.specs.lifecycle import BYTES_A_MINUTE, SHOW_LOGS
from airflow_kftrain.specs.timeouts import Timeouts

_VERSION = 1
POLL_INTERVAL = 60.0
_USUAL = Timeouts()
"""One for all orders."""
_LONGEST = 10.0**9
"""Seconds: thirty years. What is longer was not meant, and may be more than Python can count."""


class WatchOrder(NamedTuple):
    """Which job is to be watched, for whom, and how patiently."""

    job: JobReference
    api_version: str
    connection: str | None = None
    """Airflow's id of the connection; never what it holds."""
    instance: str = ""
    """Value of the label that marks all jobs of this Airflow; "" where somebody else made it."""
    owner: str = ""
    """`ti.id` of the try that waits for it; "" where nobody may delete it (a sensor)."""
    timeouts: Timeouts = _USUAL
    deadline: datetime | None = None
    """The execution timeout, as a moment."""
    not_before: datetime | None = None
    """No event before this moment: Airflow loses one that comes too early."""
    fail_fast: bool = False
    poll_interval: float = POLL_INTERVAL
    """Seconds between looks where no watch is allowed, and between looks that make sure."""
    show_logs: str = "off"
    bytes_a_minute: int = BYTES_A_MINUTE
    ordered: datetime | None = None
    """When the order was given: a triggerer that starts much later has taken over."""

    @property
    def kind(self) -> JobKind:
        """Raises UnknownKind."""
        return find_kind(self.api_version, self.job.kind)

    def to_dict(self) -> dict[str, Any]:
        """JSON, without what has its default."""
        return {"version": _VERSION, **_what_differs(self)}

    @classmethod
    def from_dict(cls, said: object) -> WatchOrder:
        fields = read_mapping(said)
        job = read_mapping(fields.get("job"))
        return cls(
            job=JobReference(*(_text(job.get(name)) for name in JobReference._fields)),
            api_version=_text(fields.get("api_version")),
            connection=_text(fields.get("connection")) or None,
            instance=_text(fields.get("instance")),
            owner=_text(fields.get("owner")),
            timeouts=_read_timeouts(fields.get("timeouts")),
            deadline=read_time(fields.get("deadline")),
            not_before=read_time(fields.get("not_before")),
            fail_fast=fields.get("fail_fast") is True,
            poll_interval=_read_seconds(fields.get("poll_interval")) or POLL_INTERVAL,
            show_logs=_read_show(fields.get("show_logs")),
            bytes_a_minute=_positive(fields.get("bytes_a_minute"), BYTES_A_MINUTE),
            ordered=read_time(fields.get("ordered")),
        )


class ReplicaPod(NamedTuple):
    """A pod of the job, for links to its log."""

    role: str
    index: int | None  # type: ignore[assignment]  # hides tuple.index
    pod: str
    container: str = ""
    leads: bool = False


class Outcome(NamedTuple):
    """How the job ended: the one event that a trigger fires."""

    verdict: Verdict
    reason: str = ""
    """One word, Kubernetes' own where it has one."""
    words: str = ""
    """One sentence for the author."""
    report: str = ""
    """The whole story, for the task log and the exception; it starts with `words`."""
    phase: Phase | None = None
    """Of the custom resource; None where it could not be read."""
    fault: Fault | None = None
    retryable: bool = True
    exit_code: int | None = None
    """Of the first real failure."""
    result: str = ""
    """What the main container left in its termination message; the operator makes sense of it."""
    tail: str = ""
    """The end of the leader's log."""
    pods: tuple[ReplicaPod, ...] = ()
    finished: datetime | None = None

    @property
    def story(self) -> str:
        """All that there is to tell."""
        return self.report or self.words

    def to_dict(self) -> dict[str, Any]:
        return {"version": _VERSION, **_what_differs(self)}

    @classmethod
    def from_dict(cls, said: object) -> Outcome:
        """What cannot be read is a failure that a retry may heal, never a success."""
        fields = read_mapping(said)
        verdict = _member(Verdict, fields.get("verdict"))
        if verdict in (None, Verdict.WAIT):
            words = (
                "The trigger's event cannot be read, so that nobody can say how the job ended; it "
                "may come from another version of airflow-kftrain."
            )
            phase = _member(Phase, fields.get("phase"))
            return cls(Verdict.FAILED, "UnreadableEvent", words, words, phase, Fault.SYSTEM)
        return cls(
            verdict=verdict,
            reason=_text(fields.get("reason")),
            words=_text(fields.get("words")),
            report=_text(fields.get("report")) or _text(fields.get("words")),
            phase=_member(Phase, fields.get("phase")),
            fault=_member(Fault, fields.get("fault")),
            retryable=fields.get("retryable") is not False,
            exit_code=read_number(fields.get("exit_code")),
            result=_text(fields.get("result")),
            tail=_text(fields.get("tail")),
            pods=tuple(_read_pod(pod) for pod in read_mappings(fields.get("pods"))),
            finished=read_time(fields.get("finished")),
        )


def shared_words(order: dict[str, Any]) -> dict[str, Any]:
    """The same order, as JSON. What thousands of them say alike a process holds once."""
    if not isinstance(order, dict):
        return order  # of another version: for from_dict to make sense of
    return {
        sys.intern(key): shared_words(value)
        if isinstance(value, dict)
        else sys.intern(value)
        if key in _ALIKE and type(value) is str
        else value
        for key, value in order.items()
    }


_ALIKE = ("kind", "namespace", "api_version", "connection", "instance")


def _read_pod(said: Mapping[str, Any]) -> ReplicaPod:
    return ReplicaPod(
        role=_text(said.get("role")),
        index=read_number(said.get("index")),
        pod=_text(said.get("pod")),
        container=_text(said.get("container")),
        leads=said.get("leads") is True,
    )


def _read_timeouts(said: object) -> Timeouts:
    fields = read_mapping(said)
    limits = {}
    for name in Timeouts._fields:
        if name in fields:
            limits[name] = _read_duration(fields[name], getattr(Timeouts(), name))
    return Timeouts(**limits) if limits else _USUAL


def _read_duration(said: object, default: timedelta | None) -> timedelta | None:
    if said is None:
        return None
    seconds = _read_seconds(said)
    return default if seconds is None else timedelta(seconds=seconds)


def _read_seconds(said: object) -> float | None:
    if not isinstance(said, int | float) or isinstance(said, bool):
        return None
    return float(said) if 0 <= said <= _LONGEST else None


def _read_show(said: object) -> str:
    return str(said) if said in SHOW_LOGS else "off"


def _positive(said: object, default: int) -> int:
    number = read_number(said)
    return number if number is not None and number > 0 else default


def _member(enumeration: Any, said: object) -> Any:
    try:
        return enumeration(said)
    except ValueError:
        return None


def _what_differs(noun: Any) -> dict[str, Any]:
    """The fields that do not have their default, as JSON."""
    return {
        name: _to_json(value)
        for name, value in noun._asdict().items()
        if name not in noun._field_defaults or value != noun._field_defaults[name]
    }


def _to_json(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(timezone.utc).isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if hasattr(value, "_fields"):
        return _what_differs(value)
    if isinstance(value, tuple):
        return [_to_json(item) for item in value]
    if isinstance(value, Enum):
        return value.value
    return _storable(value) if isinstance(value, str) else value


def _text(said: object) -> str:
    """As it would be stored again."""
    return _storable(read_text(said))


def _storable(text: str) -> str:
    """What is no text to a database or an encoder must not keep an event from being stored: a
    program may write anything into its log, and PostgreSQL refuses JSON with a NUL in it."""
    if text.isascii() and "\0" not in text:
        return str(text)  # no copy: a triggerer holds thousands of orders
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")
