"""Says what a job waits for, and what each trouble of a pod means if it lasts too long."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from airflow_kftrain.job_state import JobState, Phase
from airflow_kftrain.kinds import JobKind
from airflow_kftrain.monitoring.failures import Fault, exit_in_words
from airflow_kftrain.monitoring.pods import PodState, Trouble, TroubleKind
from airflow_kftrain.monitoring.queues import QueueState, Stage, queue_words
from airflow_kftrain.monitoring.text import listed, one_line, place, sentence


class Rule(NamedTuple):
    """What a trouble means."""

    fault: Fault | None
    """None if it is not known."""
    retryable: bool
    ended: str
    """The words if it has lasted too long."""
    waiting: str
    """The words while it lasts. They contain nothing that changes all the time: ErrImagePull and
    ImagePullBackOff alternate, and the message of a back-off contains its seconds."""
    advice: str


# From troubles that cannot pass to those that may pass at any time.
TROUBLES: Mapping[TroubleKind, Rule] = {
    "image_name": Rule(
        Fault.USER,
        retryable=False,
        ended="has an invalid image name, {image}",
        waiting="has an invalid image name, {image}",
        advice="Correct the image.",
    ),
    "container_config": Rule(
        Fault.USER,
        retryable=False,
        ended="refers to an object that does not exist",
        waiting="refers to an object that does not exist: {message}",
        advice="Create the Secret or ConfigMap that the message names, or correct the reference.",
    ),
    "container_create": Rule(
        Fault.USER,
        retryable=False,
        ended="could not be created",
        waiting="could not be created yet",
        advice="Check command, mounts and security context against the message.",
    ),
    "volume_name": Rule(
        Fault.USER,
        retryable=False,
        ended="could not mount a volume",
        waiting="cannot mount a volume: {message}",
        advice="Create the Secret, ConfigMap or claim that the message names, or correct the name.",
    ),
    "image_pull": Rule(
        Fault.USER,
        retryable=True,
        ended="could not pull its image {image}",
        waiting="cannot pull its image {image}",
        advice="Check the image's name and tag, the image pull secrets and the registry.",
    ),
    "volume": Rule(
        None,
        retryable=True,
        ended="could not mount a volume",
        waiting="cannot mount a volume: {message}",
        advice="Check the volume and its storage driver against the message.",
    ),
    "unschedulable": Rule(
        None,
        retryable=True,
        ended="could not be scheduled",
        waiting="cannot be scheduled: {message}",
        advice="Request no more than a node of this cluster has, or wait longer for a free one.",
    ),
    "crash_loop": Rule(
        Fault.USER,
        retryable=True,
        ended="keeps crashing",
        waiting="keeps crashing",
        advice="Look at its log.",
    ),
}
SEVERITY: Mapping[TroubleKind, int] = {what: number for number, what in enumerate(TROUBLES)}

_PENDING: Mapping[str, str] = {
    "SchedulingGated": "is held back by a scheduling gate",
    "Scheduled": "waits for its node to start it",
    "PodInitializing": "waits for its init containers",
    "ContainerCreating": "is being created (image, volumes)",
}


def trouble_words(trouble: Trouble, pod: PodState) -> str:
    """The words for a trouble that has lasted too long: where, what, Kubernetes' own words, what to
    do."""
    rule = TROUBLES[trouble.what]
    beside = trouble.container if trouble.part != "main" else ""
    last = [end for end in pod.ends if end.container == trouble.container and end.failed]
    crash = f" (last with {exit_in_words(last[0])})" if last else ""
    texts = (one_line(trouble.reason), one_line(trouble.message))
    said = sentence(": ".join(text for text in texts if text))
    where = place(pod.replica, beside)
    return f"{where} {_filled(rule.ended, trouble)}{crash}: {said} {rule.advice}"


def worst_trouble(pods: Iterable[PodState]) -> tuple[Trouble, PodState] | None:
    """The trouble that is least likely to pass, always the same one of several."""
    found = [(trouble, pod) for pod in pods if not pod.deleted for trouble in pod.troubles]
    return min(found, key=by_severity, default=None)


def by_severity(item: tuple[Trouble, PodState]) -> tuple[object, ...]:
    trouble, pod = item
    return (SEVERITY[trouble.what], pod.replica, pod.name, trouble.container, trouble.reason)


def waiting_words(
    kind: JobKind, state: JobState, pods: Sequence[PodState], queue: QueueState | None = None
) -> str:
    """What an unfinished job waits for. The words stay the same as long as that does."""
    if state.phase is Phase.QUEUED and state.queue:
        return queue_words(kind, state, queue or QueueState(Stage.WAITS))
    if state.phase is Phase.QUEUED:
        return f"The {kind.kind} waits in a queue, or is suspended{_said_by(state)}."
    present = [pod for pod in pods if pod.deleted is None]
    if state.phase is Phase.RESTARTING:
        # It is not known whether the operator replaces them: mpi-operator may just continue
        # without.
        head = f"Pods of the {kind.kind} failed, and {kind.operator} has not given up on it"
        return sentence("; ".join([f"{head}{_said_by(state)}", *_obstacles(present)]))
    if present:
        running = sum(pod.phase == "Running" for pod in present)
        head = f"{running} of {len(present)} pods of the {kind.kind} run"
        return sentence("; ".join([head, *_obstacles(present)]))
    if state.phase is Phase.RUNNING:
        return f"The {kind.kind} runs."
    work = "create its pods" if state.acknowledged else "process it"
    return f"The {kind.kind} waits for {kind.operator} to {work}."


def _said_by(state: JobState) -> str:
    return f" ({one_line(state.message).rstrip('.')})" if state.message else ""


def _obstacles(pods: Sequence[PodState], most: int = 3) -> list[str]:
    """`worker-0, worker-1 and 2 more: cannot be scheduled`: one line for each different
    obstacle."""
    replicas: dict[tuple[int, str], list[str]] = {}
    for pod in sorted(pods, key=lambda pod: (pod.role, pod.index or 0, pod.name)):
        for obstacle in _obstacles_of(pod):
            replicas.setdefault(obstacle, []).append(one_line(pod.replica))
    found = sorted(replicas)
    lines = [f"{listed(replicas[obstacle])}: {obstacle[1]}" for obstacle in found[:most]]
    return lines + ([f"{len(found) - most} more problems"] if len(found) > most else [])


def _obstacles_of(pod: PodState) -> Iterator[tuple[int, str]]:
    """With its severity, so that the worst comes first."""
    for trouble in pod.troubles:
        text = _filled(TROUBLES[trouble.what].waiting, trouble)
        yield SEVERITY[trouble.what], f"{one_line(trouble.container)} {text}".strip()
    if pod.phase == "Pending" and not pod.troubles:
        yield len(SEVERITY), _pending_words(pod)


def _pending_words(pod: PodState) -> str:
    if not pod.waiting:
        return "waits for a node"
    return _PENDING.get(pod.waiting) or f"waits, with the reason {one_line(pod.waiting)}"


def _filled(words: str, trouble: Trouble) -> str:
    return words.format(image=one_line(trouble.image), message=one_line(trouble.message))
