"""What the pods of a silent job write when they are asked to end.

A rank that hangs, in a collective for example, says nothing by itself. On SIGTERM a function
writes the stack of each of its threads. So the job is deleted while its logs are followed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

from airflow_kftrain.errors import KfTrainError
from airflow_kftrain.job_state import JobState
from airflow_kftrain.messages import WatchOrder
from airflow_kftrain.monitoring.pods import PodState
from airflow_kftrain.monitoring.text import last_lines
from airflow_kftrain.ownership import Claim, may_kill
from airflow_kftrain.watching.ending import delete_if
from airflow_kftrain.watching.feeds import Subscription

MOST_PODS = 8
LINES, SIZE = 30, 2000
_PATIENCE = 10.0
"""Seconds for a pod to say something after SIGTERM."""
_OPENING = 1.0
"""Seconds until all logs are followed."""


async def last_words(
    subscription: Subscription, order: WatchOrder, pods: Sequence[PodState]
) -> dict[str, str]:
    """By replica: the end of its log, up to the end of its pod or of our patience. The job is
    deleted, if it is still this task's; its task ends it anyway."""
    wanted = sorted(
        (pod for pod in pods if pod.runs), key=lambda pod: (not pod.leads, pod.role, pod.index or 0)
    )[:MOST_PODS]
    said: dict[str, list[str]] = {pod.replica: [] for pod in wanted}
    streams = [asyncio.create_task(_follow(subscription, pod, said[pod.replica])) for pod in wanted]
    try:
        await asyncio.sleep(_OPENING)
        with contextlib.suppress(KfTrainError):
            await _end(subscription, order)
        if streams:
            await asyncio.wait(streams, timeout=_PATIENCE)
    finally:
        for stream in streams:
            stream.cancel()
    return {
        replica: "\n".join(last_lines("\n".join(lines), LINES, SIZE))
        for replica, lines in said.items()
    }


async def _follow(subscription: Subscription, pod: PodState, lines: list[str]) -> None:
    feed = subscription.feed
    followed = feed.hub.hook.follow_log(
        feed.key.namespace, pod.name, pod.container, tail_lines=LINES
    )
    with contextlib.suppress(KfTrainError):
        async with contextlib.aclosing(followed):  # type: ignore[type-var]
            async for line in followed:
                lines.append(line.rstrip("\n"))
                del lines[: -2 * LINES]


async def _end(subscription: Subscription, order: WatchOrder) -> None:
    def is_mine(claim: Claim, state: JobState) -> bool:
        return may_kill(claim, state, order.job.uid, order.owner)

    feed = subscription.feed
    await delete_if(
        feed.hub.hook, feed.kind, feed.key.namespace, subscription.name, is_mine, foreground=True
    )
