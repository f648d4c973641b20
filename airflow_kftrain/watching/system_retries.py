"""Waits before a job that the cluster has ended runs again in the same try.

The trigger only waits: it never submits, since its arguments are stored in plain text and manifests
contain secrets. So a kill, a clear and a timeout work as they do while a job runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone

from airflow_kftrain.job_state import JobState, Phase
from airflow_kftrain.messages import Outcome, WatchOrder
from airflow_kftrain.monitoring.decisions import Verdict
from airflow_kftrain.monitoring.failures import find_disruption
from airflow_kftrain.monitoring.pods import PodState
from airflow_kftrain.monitoring.text import moment
from airflow_kftrain.watching.masking import Tell

PAUSES = (timedelta(seconds=10), timedelta(minutes=1), timedelta(minutes=5))
"""From the end of a job to the next one. The last one repeats."""


def disruption(
    order: WatchOrder, verdict: Verdict, state: JobState, pods: Sequence[PodState]
) -> str:
    """What has ended the job, if it is to run again; otherwise "". Only a job that has failed and
    ended: everywhere else it may be alive, and two trainings must never run."""
    if verdict is not Verdict.FAILED or state.phase is not Phase.FAILED:
        return ""
    cause = find_disruption(pods) if order.generation < order.system_retries else None
    return f"{cause.replica}: {cause.what}" if cause else ""


async def paused(order: WatchOrder, outcome: Outcome, tell: Tell) -> Outcome:
    """Returns the outcome when it is time for the next job."""
    if not outcome.disruption:
        return outcome
    now = datetime.now(timezone.utc)
    pause = PAUSES[min(order.generation, len(PAUSES) - 1)]
    at = (outcome.finished or now) + pause
    which = f"System retry {order.generation + 1} of {order.system_retries}"
    if order.deadline is not None and at >= order.deadline:
        tell(f"{which} is omitted, since it would start after the task's execution timeout.")
        return outcome._replace(disruption="")
    tell(f"{which} at {moment(at)}. The job was ended by the cluster: {outcome.disruption}.")
    await asyncio.sleep(max((at - now).total_seconds(), 0.0))
    return outcome


def told_earlier(order: WatchOrder) -> str:
    """For the report: what has ended the earlier jobs of this try."""
    if not order.earlier:
        return ""
    lines = (f"  {number}. {words}" for number, words in enumerate(order.earlier, 1))
    return "\n".join(["\nSystem retries of this try, and why:", *lines])
