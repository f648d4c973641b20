"""TrainJobs, runtimes and JobSets in cases without a scenario."""

from __future__ import annotations

from typing import Any

import pytest

from kftrain_local.controllers.controller import set_condition
from kftrain_local.server.admission import admit
from kftrain_local.server.refusals import Refusal
from kftrain_local.server.resources import CLUSTER_RUNTIMES, JOB_SETS, RUNTIMES, Resource
from kftrain_local.server.store import Store
from kftrain_local.server.train_runtimes import Plan, preinstalled

Object = dict[str, Any]


def planned(runtime: str, **trainer: Any) -> Object:
    """The container of the JobSet's last step."""
    found = next(each for each in preinstalled() if each["metadata"]["name"] == runtime)
    job = {"metadata": {"name": "job"}, "spec": {"trainer": trainer}}
    last = Plan(job, found).job_set()["spec"]["replicatedJobs"][-1]
    return dict(last["template"]["spec"]["template"]["spec"]["containers"][0])


def test_a_variable_can_refer_to_those_before_it_which_depends_on_the_framework() -> None:
    env = [{"name": "MINE", "value": "1"}]
    for runtime, place in (
        ("torch-distributed", 0),
        ("jax-distributed", -1),
        ("xgboost-distributed", -1),
        ("deepspeed-distributed", -1),
    ):
        names = [each["name"] for each in planned(runtime, env=env)["env"]]
        assert names[place] == "MINE", runtime
        assert len(names) > 1


def test_gpus_count_as_workers_of_xgboost() -> None:
    resources = {"limits": {"nvidia.com/gpu": "2"}}
    env = planned("xgboost-distributed", numNodes=3, resourcesPerNode=resources)["env"]
    assert {"name": "DMLC_NUM_WORKER", "value": "6"} in env


@pytest.mark.parametrize(
    ("resource", "spec", "field"),
    [
        (RUNTIMES, {"mlPolicy": {"flux": {"numProcPerNode": 1}}}, "mlPolicy.flux"),
        (CLUSTER_RUNTIMES, {"podGroupPolicy": {"volcano": {}}}, "podGroupPolicy"),
        (JOB_SETS, {"failurePolicy": {"rules": [{"action": "FailJobSet"}]}}, "failurePolicy.rules"),
        (JOB_SETS, {"startupPolicy": {"startupPolicyOrder": "InOrder"}}, "startupPolicy"),
        (JOB_SETS, {"ttlSecondsAfterFinished": 1}, "ttlSecondsAfterFinished"),
    ],
)
def test_what_would_have_no_effect_is_refused(resource: Resource, spec: Object, field: str) -> None:
    found = {"metadata": {"name": "n", "namespace": "ml"}, "spec": spec}
    with pytest.raises(Refusal, match=f"spec.{field}: Forbidden: it needs a real cluster"):
        admit(Store())(resource, found, None)


def test_the_time_of_a_condition_is_that_of_its_last_change() -> None:
    conditions: list[Object] = []
    assert not set_condition(conditions, "Suspended", "False", "Resumed", "")
    assert conditions == []
    assert set_condition(conditions, "Suspended", "True", "Suspended", "", "then")
    assert not set_condition(conditions, "Suspended", "True", "Suspended", "", "later")
    assert set_condition(conditions, "Suspended", "True", "Other", "", "later")
    assert conditions[0]["lastTransitionTime"] == "then"
    assert set_condition(conditions, "Suspended", "False", "Resumed", "", "later")
    assert [each["lastTransitionTime"] for each in conditions] == ["later"]
