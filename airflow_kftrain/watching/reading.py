"""Reads logs of a job, best effort: limited in size, and "" if a log cannot be read."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from airflow_kftrain.errors import KfTrainError
from airflow_kftrain.hooks.training_job_async import AsyncTrainingJobHook
from airflow_kftrain.monitoring.failures import Failure
from airflow_kftrain.monitoring.pods import PodState
from airflow_kftrain.monitoring.text import last_lines

TAIL_LINES = 50
TAIL_SIZE = 6000

TIMED = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d+))?(Z|[+-]\d\d:\d\d) ?(.*)", re.S)
"""A line of a log with its time: second, fraction, zone, text."""
_A_SECOND = timedelta(seconds=1)
"""Kubernetes rounds the times of ends down to whole seconds."""


async def read_tail(
    hook: AsyncTrainingJobHook, namespace: str, pod: PodState, failure: Failure | None = None
) -> str:
    """The end of a pod's log: of the run in which the failed container ended, or of the main
    container."""
    container = failure.container if failure else pod.container
    previous = failure is not None and _is_past(pod, failure)
    try:
        text = await hook.log(
            namespace,
            pod.name,
            container,
            previous=previous,
            tail_lines=TAIL_LINES,
            timestamps=failure is not None,
        )
    except KfTrainError:
        return ""
    if failure is not None:
        text = _written_before(failure.finished, text)
    return "\n".join(last_lines(text, TAIL_LINES, TAIL_SIZE))


def second_of(second: str, zone: str) -> datetime:
    return datetime.fromisoformat(second + zone.replace("Z", "+00:00"))


def _written_before(end: datetime | None, text: str) -> str:
    """The lines without their times; "" if all of them were written after the end. Then the pod was
    recreated under the same name, or the container has restarted."""
    lines = text.split("\n")
    timed = [TIMED.match(line) for line in lines]
    first = min((second_of(match[1], match[3]) for match in timed if match), default=None)
    if first and end and first > end + _A_SECOND:
        return ""
    pairs = zip(timed, lines, strict=True)
    return "\n".join(match[4] if match else line for match, line in pairs)


def _is_past(pod: PodState, failure: Failure) -> bool:
    """Whether the container has restarted since that end."""
    return any(
        end.past and (end.container, end.finished) == (failure.container, failure.finished)
        for end in pod.ends
    )
