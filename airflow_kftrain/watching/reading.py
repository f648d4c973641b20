"""Reads single things of a job, best effort: bounded, and "" or () where it cannot be had."""

from __future__ import annotations

from airflow_kftrain.errors import KfTrainError
from airflow_kftrain.hooks.training_job_async import AsyncTrainingJobHook
from airflow_kftrain.monitoring.failures import Failure
from airflow_kftrain.monitoring.pods import PodState
from airflow_kftrain.monitoring.text import last_lines

TAIL_LINES = 50
_TAIL_SIZE = 6000


async def read_tail(
    hook: AsyncTrainingJobHook, namespace: str, pod: PodState, failure: Failure | None = None
) -> str:
    """The end of a pod's log: of the container that failed, as it ran then, or of the main one."""
    container = failure.container if failure else pod.container
    previous = failure is not None and _is_past(pod, failure)
    try:
        text = await hook.log(
            namespace, pod.name, container, previous=previous, tail_lines=TAIL_LINES
        )
    except KfTrainError:
        return ""
    return "\n".join(last_lines(text, TAIL_LINES, _TAIL_SIZE))


def _is_past(pod: PodState, failure: Failure) -> bool:
    """Whether the container has been started again since that end."""
    return any(
        end.past and (end.container, end.finished) == (failure.container, failure.finished)
        for end in pod.ends
    )
