"""Timeouts: how long a job may take to come up, and how long each kind of trouble is borne."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, NamedTuple

from airflow_kftrain.errors import InvalidSpec
from airflow_kftrain.specs.later import LATER
from airflow_kftrain.specs.nouns import check_noun
from airflow_kftrain.specs.values import seconds

_LONGEST_PAUSE = timedelta(minutes=5)
"""The kubelet's longest pause before it starts a crashing container again."""


class Timeouts(NamedTuple):
    """Patience with a job that does not come up; None switches a limit off, zero is at once.

    Time in a queue or suspended never counts.
    """

    startup: timedelta | None = timedelta(minutes=30)
    """From creation, the last resume or a restart until the job runs. It does not end a job whose
    leader, initializer or pods all run, whatever the status says."""
    operator: timedelta | None = timedelta(minutes=5)
    """Until an operator writes a first status: it may be missing, or have refused in silence."""
    image_name: timedelta | None = timedelta(0)
    """InvalidImageName: waiting cannot mend it."""
    image_pull: timedelta | None = timedelta(minutes=3)
    """ErrImagePull, ImagePullBackOff: a registry may come back."""
    container_config: timedelta | None = timedelta(0)
    """CreateContainerConfigError: a Secret or ConfigMap is missing."""
    container_create: timedelta | None = timedelta(minutes=3)
    """CreateContainerError, RunContainerError: the command does not exist, or the node is busy."""
    unschedulable: timedelta | None = None
    """No node has room. Off: an autoscaler may need its time, and `startup` ends it anyway."""
    crash_loop: timedelta | None = timedelta(minutes=2)
    """CrashLoopBackOff, counted from the last crash. The pause before a restart doubles from 10
    seconds to 5 minutes, so that two minutes are reached after the fifth crash in a row."""


def check_timeouts(field: str, timeouts: Any) -> Any:
    """The timeouts with every limit a timedelta, or None."""
    if timeouts is LATER:
        return timeouts
    limits = check_noun(field, timeouts, Timeouts)._asdict()
    checked = Timeouts(
        **{name: _duration(f"{field}.{name}", value) for name, value in limits.items()}
    )
    if isinstance(checked.crash_loop, timedelta) and checked.crash_loop >= _LONGEST_PAUSE:
        raise InvalidSpec(
            f"{field}.crash_loop",
            "would never be reached: the pause before a restart is 5 minutes at most",
            value=timeouts.crash_loop,
            advice="Write less, or None to switch it off.",
        )
    return checked


def _duration(field: str, value: Any) -> Any:
    if value is None:
        return None
    number = seconds(field, value)
    return number if number is LATER else timedelta(seconds=number)
