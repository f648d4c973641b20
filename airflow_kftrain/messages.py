"""What the worker sends to the triggerer and back: orders to watch a job, and outcomes.

Both are stored as JSON, in plain text, and may be read by another version of this package than the
one that wrote them. So reading ignores what it does not know, has a default for everything that is
missing, and never raises. Orders contain names, ids and texts that Airflow has masked, but no
secrets.
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

POLL_INTERVAL = 60.0
SHOWN_KEY = "kftrain"
"""The XCom with what people see of a job: its phase, replicas, progress and usage."""
_USUAL = Timeouts()
"""One object for all orders."""
_LONGEST = 10.0**9
"""Thirty years in seconds. Longer values are mistakes, and Python may not be able to count them."""


class MaskedText(NamedTuple):
    """A text of the manifest of which Airflow has masked a part on the worker."""

    path: str
    """Below `spec`."""
    shown: str
    """As Airflow shows it: `postgres://train:***@db`."""


class WatchOrder(NamedTuple):
    """Which job to watch, for which try, and with which limits."""

    job: JobReference
    api_version: str
    connection: str | None = None
    """The id of the Airflow connection, never its content."""
    instance: str = ""
    """The value of the label that all jobs of this Airflow have; "" for a job that somebody else
    has created."""
    owner: str = ""
    """`ti.id` of the try that waits; "" if nobody may delete the job (a sensor)."""
    looped: bool = False
    """Whether its task is in a task loop, for which Airflow returns the state of the latest
    iteration only."""
    timeouts: Timeouts = _USUAL
    deadline: datetime | None = None
    """The execution timeout, as a point in time."""
    fail_fast: bool = False
    poll_interval: float = POLL_INTERVAL
    """Seconds between reads if watching is forbidden, and between reads that make sure."""
    show_logs: str = "off"
    bytes_a_minute: int = BYTES_A_MINUTE
    progress: bool = False
    """Whether to read the progress that the leader prints."""
    system_retries: int = 0
    """How often the job may run again after a disruption."""
    earlier: tuple[str, ...] = ()
    """What ended the earlier jobs of this try."""
    ordered: datetime | None = None
    """When the order was written: a triggerer that starts much later has taken over."""
    masked: tuple[MaskedText, ...] = ()
    """Where the job contains secrets that this process has not read itself."""
    cluster: str = ""
    """The fingerprint of the cluster of the job; "" in an order of an older version."""

    @property
    def generation(self) -> int:
        """How often this try has run its job again."""
        return len(self.earlier)

    @property
    def kind(self) -> JobKind:
        """Raises UnknownKind."""
        return find_kind(self.api_version, self.job.kind)

    def to_dict(self) -> dict[str, Any]:
        """As JSON, without fields that have their default."""
        return _what_differs(self)

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
            looped=fields.get("looped") is True,
            timeouts=_read_timeouts(fields.get("timeouts")),
            deadline=read_time(fields.get("deadline")),
            fail_fast=fields.get("fail_fast") is True,
            poll_interval=_read_seconds(fields.get("poll_interval")) or POLL_INTERVAL,
            show_logs=_read_show(fields.get("show_logs")),
            bytes_a_minute=_positive(fields.get("bytes_a_minute"), BYTES_A_MINUTE),
            progress=fields.get("progress") is True,
            system_retries=_positive(fields.get("system_retries"), 0),
            earlier=read_texts(fields.get("earlier")),
            ordered=read_time(fields.get("ordered")),
            masked=read_masked(fields.get("masked")),
            cluster=_text(fields.get("cluster")),
        )


class ReplicaPod(NamedTuple):
    """A pod of the job, for links to its log."""

    role: str
    index: int | None  # type: ignore[assignment]  # hides tuple.index
    pod: str
    container: str = ""
    leads: bool = False
    node: str = ""
    container_id: str = ""


class Outcome(NamedTuple):
    """How the job ended: the only event that a trigger fires."""

    verdict: Verdict
    reason: str = ""
    """One word: Kubernetes' own if there is one."""
    words: str = ""
    """One sentence for the author."""
    report: str = ""
    """The whole report, for the task log. It starts with `words`; the exception says only them."""
    phase: Phase | None = None
    """The phase of the custom resource; None if it could not be read."""
    fault: Fault | None = None
    retryable: bool = True
    exit_code: int | None = None
    """The exit code of the first real failure."""
    result: str = ""
    """The termination message of the main container; the operator interprets it."""
    tail: str = ""
    """The end of the leader's log."""
    pods: tuple[ReplicaPod, ...] = ()
    finished: datetime | None = None
    disruption: str = ""
    """What has ended the job, if it is to run again in the same try."""

    @property
    def story(self) -> str:
        """The report, or the one sentence if there is no report."""
        return self.report or self.words

    def to_dict(self) -> dict[str, Any]:
        return _what_differs(self)

    @classmethod
    def from_dict(cls, said: object) -> Outcome:
        """An event that cannot be read is a failure after which a retry may help, never a
        success."""
        fields = read_mapping(said)
        verdict = _member(Verdict, fields.get("verdict"))
        if verdict in (None, Verdict.WAIT):
            words = (
                "The trigger's event cannot be read, so the result of the job is unknown. The "
                "event may come from another version of airflow-kftrain."
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
            disruption=_text(fields.get("disruption")),
        )


def read_masked(said: object) -> tuple[MaskedText, ...]:
    return tuple(
        MaskedText(_text(each.get("path")), _text(each.get("shown")))
        for each in read_mappings(said)
    )


def read_texts(said: object) -> tuple[str, ...]:
    return tuple(_text(each) for each in said) if isinstance(said, list) else ()


def shared_words(order: dict[str, Any]) -> dict[str, Any]:
    """The same order as JSON. Texts that thousands of orders have in common exist once per
    process."""
    if not isinstance(order, dict):
        return order  # of another version, so left to from_dict
    return {
        sys.intern(key): shared_words(value)
        if isinstance(value, dict)
        else sys.intern(value)
        if key in _ALIKE and type(value) is str
        else value
        for key, value in order.items()
    }


_ALIKE = ("kind", "namespace", "api_version", "connection", "instance", "cluster")


def _read_pod(said: Mapping[str, Any]) -> ReplicaPod:
    return ReplicaPod(
        role=_text(said.get("role")),
        index=read_number(said.get("index")),
        pod=_text(said.get("pod")),
        container=_text(said.get("container")),
        leads=said.get("leads") is True,
        node=_text(said.get("node")),
        container_id=_text(said.get("container_id")),
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
    """As it could be stored again."""
    return _storable(read_text(said))


def _storable(text: str) -> str:
    """Makes a text storable: a program may write anything to its log, and PostgreSQL rejects JSON
    that contains a NUL."""
    if text.isascii() and "\0" not in text:
        return str(text)  # no copy: a triggerer has thousands of orders
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")
