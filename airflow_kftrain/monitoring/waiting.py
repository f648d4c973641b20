"""What a job waits for, and what each trouble of a pod means once it has lasted too long."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from airflow_kftrain.job_state import JobState, Phase
from airflow_kftrain.kinds import JobKind
from airflow_kftrain.monitoring.failures import Fault, exit_in_words
from airflow_kftrain.monitoring.pods import PodState, Trouble, TroubleKind
from airflow_kftrain.monitoring.text import listed, one_line, place, sentence


class Rule(NamedTuple):
    """What a trouble means."""

    fault: Fault
    retryable: bool
    ended: str
    """What is said once it has lasted too long."""
    waiting: str
    """What is said while it is borne. Nothing that changes from one look to the next: ErrImagePull
    and ImagePullBackOff take turns, and the message of a back-off counts its seconds."""
    advice: str


# From what can never heal to what may pass at any time.
TROUBLES: Mapping[TroubleKind, Rule] = {
    "image_name": Rule(
        Fault.USER,
        retryable=False,
        ended="has an image name that cannot be read, {image}",
        waiting="has an image name that cannot be read, {image}",
        advice="Correct the image.",
    ),
    "container_config": Rule(
        Fault.USER,
        retryable=False,
        ended="refers to something that is not there",
        waiting="refers to something that is not there: {message}",
        advice="Create the Secret or ConfigMap that the message names, or correct the reference.",
    ),
    "container_create": Rule(
        Fault.USER,
        retryable=False,
        ended="could not be created",
        waiting="could not be created yet",
        advice="Check command, mounts and security context against the message.",
    ),
    "image_pull": Rule(
        Fault.USER,
        retryable=True,
        ended="could not get its image {image}",
        waiting="cannot get its image {image}",
        advice="Check the image's name and tag, the image pull secrets and the registry.",
    ),
    "unschedulable": Rule(
        Fault.SYSTEM,
        retryable=True,
        ended="found no node",
        waiting="finds no node: {message}",
        advice="Ask for less, or be patient for longer (Timeouts.unschedulable).",
    ),
    "crash_loop": Rule(
        Fault.USER,
        retryable=True,
        ended="crashes again and again",
        waiting="crashes again and again",
        advice="Look at its log.",
    ),
}
SEVERITY: Mapping[TroubleKind, int] = {what: number for number, what in enumerate(TROUBLES)}

_PENDING: Mapping[str, str] = {
    "SchedulingGated": "is held back by a scheduling gate",
    "PodInitializing": "waits for its init containers",
    "ContainerCreating": "is being created (image, volumes)",
}


def trouble_words(trouble: Trouble, pod: PodState) -> str:
    """A trouble that has lasted too long: where, what, as Kubernetes says it, what to do."""
    rule = TROUBLES[trouble.what]
    where = place(pod.replica, pod.name, trouble.container)
    last = [end for end in pod.ends if end.container == trouble.container and end.failed]
    crash = f" (last with {exit_in_words(last[0])})" if last else ""
    texts = (one_line(trouble.reason), one_line(trouble.message))
    said = sentence(": ".join(text for text in texts if text))
    return f"{where} {_filled(rule.ended, trouble)}{crash}: {said} {rule.advice}"


def waiting_words(kind: JobKind, state: JobState, pods: Sequence[PodState]) -> str:
    """What a living job waits for; the same words as long as that is the same."""
    if state.phase is Phase.QUEUED:
        return f"The {kind.kind} waits in a queue, or is suspended{_said_by(state)}."
    present = [pod for pod in pods if pod.deleted is None]
    if state.phase is Phase.RESTARTING:
        # Whether it replaces them is not told: mpi-operator may just go on without one.
        head = f"Pods of the {kind.kind} failed, and {kind.operator} has not given it up"
        return sentence("; ".join([f"{head}{_said_by(state)}", *_obstacles(present)]))
    if present:
        running = sum(pod.phase == "Running" for pod in present)
        head = f"{running} of {len(present)} pods of the {kind.kind} run"
        return sentence("; ".join([head, *_obstacles(present)]))
    if state.phase is Phase.RUNNING:
        return f"The {kind.kind} runs."
    work = "create its pods" if state.acknowledged else "take it up"
    return f"The {kind.kind} waits for {kind.operator} to {work}."


def _said_by(state: JobState) -> str:
    return f" ({one_line(state.message).rstrip('.')})" if state.message else ""


def _obstacles(pods: Sequence[PodState], most: int = 3) -> list[str]:
    """`worker-0, worker-1 and 2 more: finds no node`, a line for each different obstacle."""
    replicas: dict[tuple[int, str], list[str]] = {}
    for pod in sorted(pods, key=lambda pod: (pod.role, pod.index or 0, pod.name)):
        for obstacle in _obstacles_of(pod):
            replicas.setdefault(obstacle, []).append(one_line(pod.replica))
    found = sorted(replicas)
    lines = [f"{listed(replicas[obstacle])}: {obstacle[1]}" for obstacle in found[:most]]
    return lines + ([f"{len(found) - most} more obstacles"] if len(found) > most else [])


def _obstacles_of(pod: PodState) -> Iterator[tuple[int, str]]:
    """With its severity, so that the worst can be told first."""
    for trouble in pod.troubles:
        text = _filled(TROUBLES[trouble.what].waiting, trouble)
        yield SEVERITY[trouble.what], f"{trouble.container} {text}".strip()
    if pod.phase == "Pending" and not pod.troubles:
        yield len(SEVERITY), _PENDING.get(pod.waiting, "waits for a node")


def _filled(words: str, trouble: Trouble) -> str:
    return words.format(image=one_line(trouble.image), message=one_line(trouble.message))
