"""What operators ask the API server, counted."""

from __future__ import annotations

import pytest

from airflow_kftrain.ownership import read_claim
from kftrain_local.faults.proxy import FaultProxy, running
from kftrain_local.faults.rules import Fault
from tests.cluster.operated import Instance, Operated, execute, operator
from tests.cluster.targets import LocalTarget
from tests.cluster.world import World


@pytest.fixture
def operated(world: World, monkeypatch: pytest.MonkeyPatch) -> Operated:
    return Operated(world, monkeypatch)


def test_a_fresh_job_costs_two_calls(
    operated: Operated, target: LocalTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(FaultProxy(str(target.kubeconfig))) as proxy:
        operated.connect(str(proxy.kubeconfig), monkeypatch)
        execute(operator(wait_for_completion=False), Instance())
        assert dict(proxy.calls) == {("list", "pytorchjobs"): 1, ("create", "pytorchjobs"): 1}


def test_a_job_that_changes_while_it_is_adopted_is_looked_at_again(
    operated: Operated, target: LocalTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = Instance(retries=1)
    execute(operator("sleep 600", retries=1, wait_for_completion=False), lost)
    before = operated.runs()
    changed = Fault(verb="patch", resource="pytorchjobs", code=409, times=2)
    with running(FaultProxy(str(target.kubeconfig), changed)) as proxy:
        operated.connect(str(proxy.kubeconfig), monkeypatch)
        retry = Instance(before=lost)
        execute(operator("sleep 600", retries=1, wait_for_completion=False), retry)
        assert dict(proxy.calls) == {
            ("list", "pytorchjobs"): 1,
            ("patch", "pytorchjobs"): 3,
            ("get", "pytorchjobs"): 2,
        }
    job = operated.job()
    assert job["metadata"]["uid"] == before["metadata"]["uid"]
    assert read_claim(job).owner.ti_id == retry.id
