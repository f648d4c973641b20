"""Jobs of batch/v1 in cases without a scenario: a controller with an API server, and no node."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

import pytest

from kftrain_local.api_client import ApiClient, ApiError, Cluster, core
from kftrain_local.controllers import batch_jobs
from kftrain_local.controllers.batch_jobs import BatchJobController
from kftrain_local.server.admission import admit
from kftrain_local.server.api_server import ApiServer
from kftrain_local.server.resources import NAMESPACES
from kftrain_local.server.store import Store

Object = dict[str, Any]
T = TypeVar("T")

_JOBS = "/apis/batch/v1/namespaces/ml/jobs"
_JOB = f"{_JOBS}/job"
_TRACKING = "batch.kubernetes.io/job-tracking"
_INDEX = "batch.kubernetes.io/job-completion-index"


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Bench:
    """The test is the node: it decides what happens to pods."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._loop = asyncio.new_event_loop()
        store = Store()
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ml"}}
        store.add(NAMESPACES, store.create(NAMESPACES, "", namespace))
        self._server = ApiServer(store, "secret", "page", admit(store))
        self.run(self._server.__aenter__())
        self.api = ApiClient(Cluster(self._server.url))
        self.run(self.api.__aenter__())
        self.controller = BatchJobController(self.api)

    def close(self) -> None:
        self.run(self.api.__aexit__())
        self.run(self._server.__aexit__())
        self._loop.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(work)

    def create(self, policy: str = "Never", **spec: Any) -> Object:
        pod = {"restartPolicy": policy, "containers": [{"name": "main", "image": "x"}]}
        body = {"metadata": {"name": "job"}, "spec": {"template": {"spec": pod}, **spec}}
        return self.run(self.api.create(_JOBS, body))

    def patch(self, **spec: Any) -> Object:
        return self.run(self.api.merge_patch(_JOB, {"spec": spec}))

    def job(self) -> Object:
        return self.run(self.api.get(_JOB))

    def status(self) -> Object:
        return dict(self.job()["status"])

    def conditions(self) -> list[str]:
        return [each["type"] for each in self.status()["conditions"]]

    def look(self) -> float | None:
        """Runs the controller as often as its own writes wake it. Returns the seconds that it asks
        for then."""
        before: object = None
        delay: float | None = None
        for _ in range(20):
            now = [self.job(), self.pods()]
            if now == before:
                return delay
            before = now
            delay = self.run(self.controller.reconcile(self.job()))
        raise AssertionError("it comes to no end")

    def pods(self) -> list[Object]:
        return self.run(self.api.list(core("ml", "pods")))[0]

    def indexes(self) -> list[str]:
        return sorted(pod["metadata"]["annotations"][_INDEX] for pod in self.pods())

    def starts(self, pod: Object) -> None:
        binding: Object = {"target": {"name": "node"}}
        binding |= {"apiVersion": "v1", "kind": "Pod", "metadata": pod["metadata"]}
        self.run(self.api.create(_path(pod, "binding"), binding))
        self._becomes(pod, phase="Running")

    def ends(self, pod: Object, code: int = 0, **status: Any) -> None:
        phase = "Failed" if code else "Succeeded"
        main = {"name": "main", "state": {"terminated": {"exitCode": code}}}
        self._becomes(pod, phase=phase, containerStatuses=[main], **status)

    def _becomes(self, pod: Object, **status: Any) -> None:
        self.run(self.api.merge_patch(_path(pod, "status"), {"status": status}))

    def delete(self, pod: Object, grace: int | None = None) -> None:
        self.run(self.api.delete(_path(pod), grace=grace))


def _path(pod: Object, part: str = "") -> str:
    return core("ml", "pods", pod["metadata"]["name"], part)


def _names(pods: list[Object]) -> set[str]:
    return {pod["metadata"]["name"] for pod in pods}


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    clock = Clock()
    monkeypatch.setattr(batch_jobs, "monotonic", clock)
    bench = Bench(clock)
    yield bench
    bench.close()


# ----- counting


def test_a_pod_is_counted_once_though_its_finalizer_could_not_be_taken(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.create()
    bench.look()
    (pod,) = bench.pods()
    bench.ends(pod, 3)

    async def refused(*_: Any) -> Object:
        raise ApiError(409, "Conflict", "somebody was quicker")

    with monkeypatch.context() as patch:
        patch.setattr(bench.api, "merge_patch", refused)
        bench.look()
    noted = {"failed": [pod["metadata"]["uid"]]}
    assert bench.status()["uncountedTerminatedPods"] == noted
    assert "failed" not in bench.status()
    bench.look()
    assert bench.status()["failed"] == 1
    assert bench.status()["uncountedTerminatedPods"] == {}


@pytest.mark.parametrize("policy", ["TerminatingOrFailed", "Failed"])
def test_a_job_has_failed_when_the_last_of_its_pods_is_gone(bench: Bench, policy: str) -> None:
    bench.create(parallelism=2, completions=2, backoffLimit=0, podReplacementPolicy=policy)
    bench.look()
    fails, runs = bench.pods()
    bench.starts(runs)
    bench.ends(fails, 3)
    bench.look()
    assert bench.conditions() == ["FailureTarget"]
    assert bench.status()["terminating"] == 1
    bench.delete(runs, grace=0)
    bench.look()
    assert bench.conditions() == ["FailureTarget", "Failed"]
    assert (bench.status()["failed"], bench.status()["terminating"]) == (2, 0)


def test_without_completions_one_success_is_enough_and_nobody_is_replaced(bench: Bench) -> None:
    bench.create(parallelism=2)
    assert "completions" not in bench.job()["spec"]
    bench.look()
    first, second = bench.pods()
    bench.ends(first)
    bench.look()
    assert not bench.status().get("conditions")
    bench.ends(second, 1)
    bench.look()
    assert bench.conditions() == ["SuccessCriteriaMet", "Complete"]
    assert len(bench.pods()) == 2


# ----- replacing pods


def test_pauses_between_pods_double_until_one_succeeds(bench: Bench) -> None:
    bench.create(completions=2)
    assert bench.look() is None
    for seconds in (10, 20, 40):
        bench.ends(_new(bench), 1)
        assert bench.look() == pytest.approx(seconds)
        bench.clock.now += seconds
        bench.look()
    bench.ends(_new(bench))
    assert bench.look() is None
    bench.ends(_new(bench), 1)
    assert bench.look() == pytest.approx(10)


def _new(bench: Bench) -> Object:
    """The pod that has not ended."""
    (pod,) = (pod for pod in bench.pods() if pod["status"]["phase"] == "Pending")
    return pod


def test_a_pod_that_is_being_deleted_is_replaced_before_it_has_ended(bench: Bench) -> None:
    bench.create()
    bench.look()
    (pod,) = bench.pods()
    bench.starts(pod)
    bench.delete(pod)
    assert bench.look() == pytest.approx(10)
    assert bench.status()["failed"] == 1
    bench.clock.now += 10
    bench.look()
    assert len(bench.pods()) == 2
    assert (bench.status()["active"], bench.status()["terminating"]) == (1, 1)


def test_under_the_policy_failed_it_is_replaced_when_it_has_ended(bench: Bench) -> None:
    bench.create(podReplacementPolicy="Failed")
    bench.look()
    (pod,) = bench.pods()
    bench.starts(pod)
    bench.delete(pod)
    assert bench.look() is None
    assert bench.status()["terminating"] == 1
    assert "failed" not in bench.status()
    assert bench.pods()[0]["metadata"]["finalizers"] == [_TRACKING]
    bench.ends(pod, 143)
    assert bench.look() == pytest.approx(10)
    assert bench.status()["failed"] == 1


def test_its_index_is_not_given_away_before(bench: Bench) -> None:
    spec: Object = {"completions": 3, "completionMode": "Indexed"}
    bench.create(parallelism=2, podReplacementPolicy="Failed", **spec)
    bench.look()
    zero = min(bench.pods(), key=lambda pod: pod["metadata"]["name"])
    bench.starts(zero)
    bench.delete(zero)
    bench.patch(parallelism=3)
    bench.look()
    assert bench.indexes() == ["0", "1", "2"]


def test_an_index_is_tried_again_until_it_succeeds(bench: Bench) -> None:
    bench.create(completions=4, parallelism=3, completionMode="Indexed")
    bench.look()
    assert bench.indexes() == ["0", "1", "2"]
    zero, one, two = sorted(bench.pods(), key=lambda pod: pod["metadata"]["name"])
    bench.ends(zero)
    bench.ends(two)
    bench.ends(one, 1)
    bench.look()
    bench.clock.now += 10
    bench.look()
    assert bench.indexes() == ["0", "1", "1", "2", "3"]
    assert bench.status()["completedIndexes"] == "0,2"
    assert (bench.status()["succeeded"], bench.status()["failed"]) == (2, 1)


def test_fewer_pods_are_those_that_have_come_least_far(bench: Bench) -> None:
    bench.create(completions=3, parallelism=3)
    bench.look()
    running = bench.pods()[1]
    bench.starts(running)
    bench.patch(parallelism=1)
    bench.look()
    assert _names(bench.pods()) == _names([running])
    assert "failed" not in bench.status()


def test_indexes_beyond_the_completions_go_and_count_no_more(bench: Bench) -> None:
    bench.create(completions=3, parallelism=3, completionMode="Indexed")
    bench.look()
    last = max(bench.pods(), key=lambda pod: pod["metadata"]["name"])
    bench.ends(last)
    bench.look()
    bench.patch(completions=2, parallelism=2)
    bench.look()
    assert "completedIndexes" not in bench.status()
    assert "succeeded" not in bench.status()
    bench.patch(completions=1, parallelism=1)
    bench.look()
    assert bench.indexes() == ["0", "2"]  # the one that has ended stays
    assert bench.status()["active"] == 1


def test_a_pod_beyond_the_completions_leaves_its_place_to_one_within(bench: Bench) -> None:
    bench.create(completions=3, parallelism=3, completionMode="Indexed")
    bench.look()
    zero, one, _ = sorted(bench.pods(), key=lambda pod: pod["metadata"]["name"])
    bench.ends(zero)
    bench.ends(one, 1)
    bench.look()
    bench.patch(completions=2, parallelism=2)
    bench.clock.now += 10
    bench.look()
    bench.look()
    assert bench.indexes() == ["0", "1", "1"]
    assert "Complete" not in bench.status()


# ----- pod failure policies


def _on_codes(operator: str, container: str | None = None) -> Object:
    codes = {"operator": operator, "values": [42]}
    return {"action": "FailJob", "onExitCodes": {**codes, "containerName": container}}


def _on_condition(**more: str) -> Object:
    pattern = {"type": "DisruptionTarget", **more}
    return {"action": "FailJob", "onPodConditions": [pattern]}


_EVICTED = {"conditions": [{"type": "DisruptionTarget", "status": "True"}]}


@pytest.mark.parametrize(
    ("rule", "code", "status", "message"),
    [
        (_on_codes("In"), 42, {}, "Container main for pod ml/{} failed with exit code 42"),
        (_on_codes("In", "other"), 42, {}, None),
        (_on_codes("In"), 41, {}, None),
        (_on_codes("NotIn"), 41, {}, "Container main for pod ml/{} failed with exit code 41"),
        (_on_codes("NotIn"), 42, {}, None),
        (_on_condition(), 1, _EVICTED, "Pod ml/{} has condition DisruptionTarget"),
        (_on_condition(status="False"), 1, _EVICTED, None),
    ],
)
def test_rules_that_fail_a_job(
    bench: Bench, rule: Object, code: int, status: Object, message: str | None
) -> None:
    bench.create(podFailurePolicy={"rules": [{**rule}]})
    bench.look()
    (pod,) = bench.pods()
    bench.ends(pod, code, **status)
    bench.look()
    if message is None:
        assert not bench.status().get("conditions")
        return
    text = message.format(pod["metadata"]["name"])
    failed = bench.status()["conditions"][-1]
    assert (failed["type"], failed["reason"]) == ("Failed", "PodFailurePolicy")
    assert failed["message"] == f"{text} matching FailJob rule at index 0"


def test_rules_come_in_order_and_other_failures_count(bench: Bench) -> None:
    ignored = {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [1, 42]}}
    bench.create(podFailurePolicy={"rules": [ignored, _on_codes("In")]})
    for code, failed in ((42, None), (1, None), (2, 1)):
        bench.look()
        bench.ends(_new(bench), code)
        bench.look()
        assert bench.status().get("failed") == failed
        bench.clock.now += 600
    assert not bench.status().get("conditions")


# ----- Jobs and pods of other owners


def test_a_job_of_another_controller_is_left_alone(bench: Bench) -> None:
    bench.create(managedBy="kueue.x-k8s.io/multikueue")
    bench.look()
    assert not bench.pods()
    assert "status" not in bench.job()


@pytest.mark.parametrize("again", [False, True])
def test_pods_of_a_job_that_is_gone_are_let_go(bench: Bench, again: bool) -> None:
    bench.create()
    bench.look()
    (left,) = bench.pods()
    bench.run(bench.api.delete(_JOB, policy="Orphan"))
    if again:  # before anybody has seen that it was gone
        bench.create()
        bench.look()
    else:
        bench.run(bench.controller.gone("ml", "job"))
    by_name = {pod["metadata"]["name"]: pod["metadata"] for pod in bench.pods()}
    assert "finalizers" not in by_name.pop(left["metadata"]["name"])
    assert [metadata["finalizers"] for metadata in by_name.values()] == [[_TRACKING]] * again


# ----- rejections


@pytest.mark.parametrize(
    ("spec", "fault"),
    [
        ({"backoffLimit": -1}, "backoffLimit: Invalid value: -1: must be greater than or equal"),
        ({"ttlSecondsAfterFinished": -1}, "ttlSecondsAfterFinished: Invalid value: -1"),
        (
            {"completionMode": "Indexed", "parallelism": 1},
            "completions: Required value: when completion mode is Indexed",
        ),
        ({"successPolicy": {"rules": []}}, "successPolicy: Forbidden: it needs a real cluster"),
        (
            {"policy": "OnFailure", "podFailurePolicy": {"rules": []}},
            'template.spec.restartPolicy: Invalid value: "OnFailure": only "Never" is supported',
        ),
    ],
)
def test_a_job_that_cannot_work_is_refused(bench: Bench, spec: Object, fault: str) -> None:
    with pytest.raises(ApiError) as caught:
        bench.create(**spec)
    assert caught.value.code == 422
    assert f'Job.batch "job" is invalid: spec.{fault}' in str(caught.value)


def test_the_template_of_a_suspended_job_can_be_changed_and_its_selector_never(
    bench: Bench,
) -> None:
    bench.create(suspend=True)
    bench.patch(template={"spec": {"nodeSelector": {"zone": "a"}}})
    bench.patch(suspend=False)
    bench.look()
    assert bench.pods()[0]["spec"]["nodeSelector"] == {"zone": "a"}
    with pytest.raises(ApiError, match="completions: Invalid value: 7: field is immutable"):
        bench.patch(completions=7)
    bench.patch(suspend=True)
    with pytest.raises(ApiError, match="selector: Invalid value"):
        bench.patch(selector={"matchLabels": {"mine": "yes"}})


@pytest.mark.parametrize("text", ["", "0", "0,1", "0-2", "0,1,3-5,7,9,10"])
def test_indexes_are_told_as_ranges_and_read_back(text: str) -> None:
    assert batch_jobs._ranges([*batch_jobs._numbers(text)]) == text
