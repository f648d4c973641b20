"""What a job has used, from the pods that are there at its end."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_kftrain.job_state import JobState, Phase, ReplicaCount
from airflow_kftrain.monitoring.usage import Usage, read_usage
from tests.unit.monitoring.samples import NOON, after, at, container, ended, raw_pod, running


def pod(*containers: dict[str, Any], name: str = "p", gpus: object = None, **more: Any) -> Any:
    made = raw_pod(*containers, name=name, **more)
    made["status"]["startTime"] = at(5)
    if gpus is not None:
        limits = {"nvidia.com/gpu": gpus, "cpu": "4"}
        made["spec"] = {"containers": [{"name": "pytorch", "resources": {"limits": limits}}]}
    return made


def state(resumed: int = 0, done: int | None = 65, pods: int = 0) -> JobState:
    return JobState(
        Phase.SUCCEEDED,
        starting_since=after(resumed),
        finished=None if done is None else after(done),
        replicas=(ReplicaCount("worker", succeeded=pods),) if pods else (),
    )


def test_a_job_that_was_queued_and_has_succeeded() -> None:
    pods = [
        pod(container(ended(0)), name=f"p{n}", phase="Succeeded", gpus="2", created=2)
        for n in range(2)
    ]
    usage = read_usage(state(resumed=2, pods=2), pods, after(-30), after(70))
    assert usage == Usage(
        queued=32.0,
        starting=8.0,
        running=55.0,
        pod_seconds=110.0,
        devices={"nvidia.com/gpu": 220.0},
    )
    assert usage.words() == (
        "32 s queued, 8 s starting, 55 s running, 1 min 50 s of pods, 3 min 40 s of nvidia.com/gpu"
    )


def test_a_pod_that_still_runs_counts_until_now() -> None:
    usage = read_usage(state(done=None), [pod(container(running()), gpus=1)], NOON, after(3605))
    assert usage.pod_seconds == 3600.0
    assert usage.devices == {"nvidia.com/gpu": 3600.0}
    assert usage.running == 3595.0


def test_restarts_in_place_and_recreated_pods() -> None:
    pods = [
        pod(container(ended(0), last=ended(1, 30), restarts=3), phase="Succeeded"),
        pod(container(ended(1)), phase="Failed"),  # of the same name: the one before
    ]
    assert read_usage(state(), pods, NOON, after(70)).restarts == 4


def test_pods_that_are_gone_are_said() -> None:
    usage = read_usage(state(pods=3), [], NOON, after(70))
    assert (usage.running, usage.pod_seconds) == (None, 0.0)
    assert usage.unseen == "3 of 3 pods were gone and are not counted"
    assert usage.words().endswith("0 s of pods (3 of 3 pods were gone and are not counted)")


def test_a_job_that_never_started() -> None:
    usage = read_usage(JobState(Phase.QUEUED, starting_since=NOON), [], NOON, after(40))
    assert (usage.queued, usage.starting, usage.running) == (0.0, 40.0, 0.0)


def test_an_adopted_job_counts_from_this_try_only() -> None:
    pods = [pod(container(ended(0)), phase="Succeeded")]
    usage = read_usage(state(), pods, after(40), after(70))
    assert (usage.queued, usage.starting, usage.running) == (0.0, 0.0, 25.0)


@pytest.mark.parametrize("gpus", ["x", -1, None, {"a": 1}, "1e999", True])
def test_amounts_that_cannot_be_read(gpus: object) -> None:
    usage = read_usage(state(), [pod(container(running()), gpus=gpus)], NOON, after(70))
    assert usage.devices == {}


@given(
    st.recursive(
        st.none() | st.booleans() | st.text(),
        lambda x: (
            st.dictionaries(
                st.sampled_from(
                    ["metadata", "status", "spec", "containers", "startTime", "limits"]
                ),
                x,
            )
            | st.lists(x)
        ),
    )
)
def test_nonsense_does_not_raise(found: Any) -> None:
    pods = found if isinstance(found, list) else [found]
    usage = read_usage(state(), [each for each in pods if isinstance(each, dict)], NOON, NOON)
    json.dumps(usage.to_dict())
