from __future__ import annotations

from typing import Any

import pytest

from kftrain_local.agent.status import (
    Backoff,
    ContainerStatus,
    Verdict,
    build_status,
    phase_of,
    restarts,
)
from tests.unit.local.pods import a_container, a_pod


def ended(code: int) -> dict[str, Any]:
    status = ContainerStatus(a_container())
    status.terminate(code, "Error" if code else "Completed")
    return status.state


RUNNING = {"running": {"startedAt": "then"}}
WAITING = {"waiting": {"reason": "ContainerCreating"}}
CRASHED = {"waiting": {"reason": "CrashLoopBackOff"}}


def a_status(state: dict[str, Any], init: bool = False, sidecar: bool = False) -> ContainerStatus:
    spec = a_container(name="init" if init else "main")
    if sidecar:
        spec["restartPolicy"] = "Always"
    last = ended(1) if state is CRASHED else {}
    return ContainerStatus(spec, init=init, state=state, last_state=last)


@pytest.mark.parametrize(
    ("policy", "states", "phase"),
    [
        ("Never", [WAITING], "Pending"),
        ("Never", [RUNNING], "Running"),
        ("Never", [RUNNING, WAITING], "Pending"),
        ("Never", [ended(0)], "Succeeded"),
        ("Never", [ended(0), ended(1)], "Failed"),
        ("Never", [ended(1), RUNNING], "Running"),
        ("OnFailure", [ended(0)], "Succeeded"),
        ("OnFailure", [ended(1)], "Running"),
        ("OnFailure", [CRASHED], "Running"),
        ("Always", [ended(0)], "Running"),
        ("Always", [CRASHED], "Running"),
    ],
)
def test_phases(policy: str, states: list[dict[str, Any]], phase: str) -> None:
    assert phase_of(policy, [a_status(state) for state in states], None) == phase


@pytest.mark.parametrize(
    ("policy", "init", "phase"),
    [
        ("Never", WAITING, "Pending"),
        ("Never", RUNNING, "Pending"),
        ("Never", ended(1), "Failed"),
        ("OnFailure", ended(1), "Pending"),
        ("Never", ended(0), "Running"),
    ],
)
def test_init_containers_hold_up_the_phase(policy: str, init: dict[str, Any], phase: str) -> None:
    assert phase_of(policy, [a_status(init, init=True), a_status(RUNNING)], None) == phase


def test_sidecars_do_not_count_except_that_they_have_to_end() -> None:
    sidecar = a_status(RUNNING, init=True, sidecar=True)
    assert phase_of("Never", [sidecar, a_status(RUNNING)], None) == "Running"
    assert phase_of("Never", [sidecar, a_status(ended(0))], None) == "Running"
    sidecar.state = ended(143)
    assert phase_of("Never", [sidecar, a_status(ended(0))], None) == "Succeeded"


@pytest.mark.parametrize(
    ("verdict", "code", "phase"),
    [
        (Verdict(), 0, "Succeeded"),
        (Verdict(), 143, "Failed"),
        (Verdict("DeadlineExceeded"), 0, "Failed"),
    ],
)
def test_a_pod_that_was_ended_has_a_final_phase(verdict: Verdict, code: int, phase: str) -> None:
    assert phase_of("Always", [a_status(ended(code))], verdict) == phase


@pytest.mark.parametrize(
    ("policy", "code", "again"),
    [
        ("Never", 1, False),
        ("OnFailure", 1, True),
        ("OnFailure", 0, False),
        ("Always", 0, True),
    ],
)
def test_restart_policies(policy: str, code: int, again: bool) -> None:
    assert restarts(policy, a_status(ended(code))) is again


def test_a_container_may_have_a_policy_of_its_own() -> None:
    for init in (False, True):
        container = a_status(ended(1), init=init)
        container.spec["restartPolicy"] = "Never"
        assert not restarts("Always", container)
        assert phase_of("Always", [container], None) == "Failed"
        container.spec["restartPolicy"] = "OnFailure"
        assert restarts("Never", container)


def test_an_init_container_that_succeeded_is_not_restarted_and_a_sidecar_always() -> None:
    assert not restarts("Always", a_status(ended(0), init=True))
    assert restarts("Always", a_status(ended(1), init=True))
    assert restarts("Never", a_status(ended(0), init=True, sidecar=True))


def test_back_off_doubles_to_five_minutes_and_starts_anew_after_ten() -> None:
    backoff, now, pauses = Backoff(10, 300), 0.0, []
    for _ in range(8):
        pauses.append(backoff.next(now))
        now += pauses[-1]
    assert pauses == [0, 10, 20, 40, 80, 160, 300, 300]
    # Counted from crash to crash, including the pause.
    assert backoff.next(now + 299) == 300
    assert backoff.next(now + 299 + 601) == 0


def test_a_status_with_conditions_of_others_kept() -> None:
    pod = a_pod(a_container(), restartPolicy="Never")
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "t"}
    ready = {"type": "Ready", "status": "False", "lastTransitionTime": "long ago"}
    pod["status"] = {"conditions": [ready, scheduled]}
    status = build_status(pod, [a_status(ended(3))], "start")
    assert status["phase"] == "Failed"
    assert status["podIP"] == "127.0.0.1"
    conditions = {condition["type"]: condition for condition in status["conditions"]}
    assert {kind: condition["status"] for kind, condition in conditions.items()} == {
        "PodScheduled": "True",
        "Initialized": "True",
        "Ready": "False",
        "ContainersReady": "False",
    }
    assert conditions["PodScheduled"] == scheduled
    assert conditions["Ready"]["lastTransitionTime"] == "long ago"
    assert conditions["Ready"]["reason"] == "PodFailed"
    assert "message" not in conditions["Ready"]
    assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3


@pytest.mark.parametrize("code", [None, 3])
def test_conditions_name_the_containers_that_hold_up(code: int | None) -> None:
    init = a_status(RUNNING if code is None else ended(code), init=True)
    pod = a_pod(a_container(), restartPolicy="Never")
    status = build_status(pod, [init, a_status(WAITING)], "start")
    conditions = {condition["type"]: condition for condition in status["conditions"]}
    said = {kind: (c["reason"], c.get("message")) for kind, c in conditions.items()}
    unready = ("ContainersNotReady", "containers with unready status: [main]")
    assert said == {
        "Initialized": ("ContainersNotInitialized", "containers with incomplete status: [init]"),
        "Ready": unready if code is None else ("PodFailed", None),
        "ContainersReady": unready if code is None else ("PodFailed", None),
    }


def test_a_container_that_ran_under_an_agent_before_is_lost() -> None:
    status = ContainerStatus(a_container())
    status.take_over({"name": "main", "state": RUNNING, "restartCount": 2, "containerID": "c"})
    assert status.exit_code == 137
    assert status.state["terminated"]["reason"] == "ContainerStatusUnknown"
    assert status.restarts == 2


def test_a_container_that_begins_again_tells_of_its_end_as_the_one_before() -> None:
    status = a_status(ended(3))
    status.begin_again()
    told = status.as_object()
    assert told["restartCount"] == 1
    assert told["lastState"]["terminated"]["exitCode"] == 3
