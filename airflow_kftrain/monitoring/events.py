"""The only reader of events, of either API: a dict -> Event. Never raises."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import NamedTuple

from airflow_kftrain.job_state import read_mapping, read_number, read_text, read_time
from airflow_kftrain.monitoring.text import one_line

_LONGEST_MESSAGE = 2000
_LONG_AGO = datetime.min.replace(tzinfo=timezone.utc)


class Event(NamedTuple):
    reason: str
    message: str
    about: str
    """Kind and name of the object."""
    name: str
    is_warning: bool
    seen: int
    """How often it occurred."""
    first: datetime
    time: datetime
    """When it occurred last."""


def read_event(event: object) -> Event:
    """The scheduler leaves `count` and `lastTimestamp` null."""
    root = read_mapping(event)
    series = read_mapping(root.get("series"))
    about = read_mapping(root.get("involvedObject")) or read_mapping(root.get("regarding"))
    created = read_mapping(root.get("metadata")).get("creationTimestamp")
    firsts = (
        root.get("firstTimestamp"),
        root.get("deprecatedFirstTimestamp"),
        root.get("eventTime"),
        created,
    )
    lasts = (
        series.get("lastObservedTime"),
        root.get("lastTimestamp"),
        root.get("deprecatedLastTimestamp"),
        root.get("eventTime"),
        root.get("firstTimestamp"),
        created,
    )
    counts = (series.get("count"), root.get("count"), root.get("deprecatedCount"))
    name = read_text(about.get("name"))
    return Event(
        reason=one_line(read_text(root.get("reason"))),
        message=whole_line(read_text(root.get("message")) or read_text(root.get("note"))),
        about=f"{read_text(about.get('kind'))} {name}".strip(),
        name=name,
        is_warning=root.get("type") == "Warning",
        seen=next((number for number in map(read_number, counts) if number), 1),
        first=_first_time(firsts) or _LONG_AGO,
        time=_first_time(lasts) or _LONG_AGO,
    )


def whole_line(text: str) -> str:
    """Long enough to be compared; it is shortened where it is shown."""
    return one_line(text, _LONGEST_MESSAGE)


def _first_time(said: tuple[object, ...]) -> datetime | None:
    return next((time for time in map(read_time, said) if time), None)
