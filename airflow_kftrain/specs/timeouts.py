"""Timeouts: how long a job may take to start, and how long each kind of trouble may last."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, NamedTuple

from airflow_kftrain.errors import InvalidSpec
from airflow_kftrain.specs.later import LATER
from airflow_kftrain.specs.nouns import answering, check_noun
from airflow_kftrain.specs.values import seconds

_LONGEST_PAUSE = timedelta(minutes=5)
"""The longest pause of the kubelet before it restarts a crashing container."""
_LEAST_SILENCE = timedelta(minutes=1)


@answering
class Timeouts(NamedTuple):
    """How long a job may take to start, and how long it may be silent. None disables a limit, zero
    means at once.

    Time in a queue, or while the job is suspended, counts for `queue` only.
    """

    startup: timedelta | None = timedelta(minutes=30)
    """From creation, the last resume or a restart until the job runs. A job is not ended while its
    leader, its initializer or all its pods run, whatever its status says."""
    operator: timedelta | None = timedelta(minutes=5)
    """Until an operator writes a first status: it may be missing, or have rejected the job
    silently."""
    image_name: timedelta | None = timedelta(0)
    """InvalidImageName: waiting does not help."""
    image_pull: timedelta | None = timedelta(minutes=3)
    """ErrImagePull, ImagePullBackOff: the registry may recover."""
    container_config: timedelta | None = timedelta(0)
    """CreateContainerConfigError: a Secret or ConfigMap is missing."""
    container_create: timedelta | None = timedelta(minutes=3)
    """CreateContainerError, RunContainerError: the command does not exist, or the node is busy."""
    volume_name: timedelta | None = timedelta(minutes=3)
    """The Secret, ConfigMap or PersistentVolumeClaim of a volume does not exist."""
    volume: timedelta | None = None
    """FailedMount, FailedAttachVolume: a volume cannot be mounted for another reason. Off, since a
    storage driver may take long, and `startup` ends the wait."""
    unschedulable: timedelta | None = None
    """No node has enough resources. Off, since an autoscaler may take long, and `startup` ends the
    wait."""
    crash_loop: timedelta | None = timedelta(minutes=2)
    """CrashLoopBackOff, counted from the last crash. The pause before a restart doubles from 10
    seconds to 5 minutes, so two minutes are reached after the fifth crash in a row."""
    silence: timedelta | None = None
    """For how long the leader of a running job may write nothing to its log. Off, since many
    programs write little. With a limit, its log is read four times in that time, but not more often
    than once a minute."""
    queue: timedelta | None = None
    """In a queue, or suspended, each time anew. Off: queues may be long."""


def check_timeouts(field: str, timeouts: Any) -> Any:
    """The timeouts with every limit as a timedelta or None."""
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
            advice="Use less, or None to disable it.",
        )
    if isinstance(checked.silence, timedelta) and checked.silence < _LEAST_SILENCE:
        raise InvalidSpec(
            f"{field}.silence",
            "is too short: the log is read once a minute",
            value=timeouts.silence,
            advice="Use five minutes or more, or None to disable it.",
        )
    return checked


def _duration(field: str, value: Any) -> Any:
    if value is None:
        return None
    number = seconds(field, value)
    return number if number is LATER else timedelta(seconds=number)
