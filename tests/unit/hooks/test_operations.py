"""hooks/operations.py: the order of calls, and when they are repeated."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import pytest

from airflow_kftrain.errors import (
    ClusterError,
    Conflict,
    Expired,
    Forbidden,
    NotServed,
    Refused,
    Unauthorized,
    Unreachable,
)
from airflow_kftrain.hooks import api_calls, operations
from airflow_kftrain.hooks.answers import NOT_TRUSTED, QUOTA_EXCEEDED, Answer
from airflow_kftrain.hooks.api_calls import Call
from airflow_kftrain.hooks.operations import Outside, pause_before_retry
from airflow_kftrain.kinds import PYTORCH_JOB, TRAIN_JOB
from airflow_kftrain.manifests.identity import OWNER_ANNOTATION

Reply = Answer | ClusterError


def job(owner: str = "me", **metadata: Any) -> dict[str, Any]:
    notes = {OWNER_ANNOTATION: owner} if owner else {}
    return {"metadata": {"name": "train", "namespace": "ml", "annotations": notes, **metadata}}


def good(body: Any, code: int = 200) -> Answer:
    return Answer(code, {}, json.dumps(body))


def bad(code: int, reason: str = "", message: str = "", **details: Any) -> Answer:
    status = {"kind": "Status", "message": message, "reason": reason, "details": details}
    return Answer(code, {}, json.dumps(status))


BUSY = bad(503, "ServiceUnavailable", "busy")
EXISTS = bad(409, "AlreadyExists", 'pytorchjobs.kubeflow.org "train" already exists')
MISSING = bad(404, "NotFound", 'pytorchjobs.kubeflow.org "train" not found', name="train")
LOST = Unreachable("create", "the connection broke")


class Told(NamedTuple):
    """What has happened."""

    calls: list[Call]
    pauses: list[float]
    result: Any

    @property
    def methods(self) -> list[str]:
        return [call.method for call in self.calls]


def hold(
    operation: Callable[[Outside], Awaitable[Any]], *replies: Reply, luck: float = 0.5
) -> Told:
    """Replaces the cluster: each call gets the next reply, and the last one again and again. The
    clock moves only in pauses; an error that ends the operation is its result."""
    now, told = 0.0, Told([], [], None)
    waiting = list(replies)

    async def send(call: Call) -> Answer:
        told.calls.append(call)
        reply = waiting.pop(0) if len(waiting) > 1 else waiting[0]
        if isinstance(reply, Exception):
            raise reply
        return reply

    async def sleep(seconds: float) -> None:
        nonlocal now
        told.pauses.append(seconds)
        now += seconds

    async def play() -> Any:
        return await operation(Outside(send, lambda: now, lambda: luck, sleep))

    try:
        return told._replace(result=asyncio.run(play()))
    except ClusterError as error:
        return told._replace(result=error)


def submit(*replies: Reply, manifest: dict[str, Any] | None = None) -> Told:
    return hold(
        lambda outside: operations.submit(PYTORCH_JOB, manifest or job(), outside), *replies
    )


class TestPauses:
    def error(self, kind: type[ClusterError] = ClusterError, **said: Any) -> ClusterError:
        return kind("create", "no", **said)

    def test_grow_up_to_a_limit(self) -> None:
        pauses = [pause_before_retry(self.error(), n, 1.0, 1000) for n in range(1, 9)]
        assert pauses == [1, 2, 4, 8, 16, 20, 20, 20]

    @pytest.mark.parametrize("attempt", [1, 3, 10])
    def test_differ_by_luck(self, attempt: int) -> None:
        least = pause_before_retry(self.error(), attempt, 0.0, 1000)
        most = pause_before_retry(self.error(), attempt, 1.0, 1000)
        assert least is not None
        assert most == 2 * least

    def test_are_never_shorter_than_the_server_asks(self) -> None:
        error = self.error()
        error.retry_after = 30
        assert pause_before_retry(error, 1, 0.0, 1000) == 30
        assert pause_before_retry(error, 1, 1.0, 1000) == 37.5

    def test_end_with_the_time_that_is_left(self) -> None:
        assert pause_before_retry(self.error(), 3, 1.0, 4.0) == 4
        assert pause_before_retry(self.error(), 3, 1.0, 3.9) is None

    @pytest.mark.parametrize("kind", [Forbidden, Refused, NotServed, Conflict, Expired])
    def test_there_are_none_where_nothing_will_change(self, kind: type[ClusterError]) -> None:
        assert pause_before_retry(self.error(kind), 1, 0.5, 1000) is None

    def test_there_are_none_where_it_will_not_change_so_soon(self) -> None:
        quota = self.error(reason=QUOTA_EXCEEDED)
        certificate = self.error(Unreachable, reason=NOT_TRUSTED)
        for error in (quota, certificate):
            assert error.retryable
            assert pause_before_retry(error, 1, 0.5, 1000) is None

    def test_credentials_are_made_anew_a_few_times(self) -> None:
        error = self.error(Unauthorized)
        pauses = [pause_before_retry(error, attempt, 1.0, 1000) for attempt in (1, 2, 3, 4)]
        assert pauses == [1, 2, None, None]


class TestSubmit:
    def test_is_one_call(self) -> None:
        told = submit(good(job(), 201))
        assert (told.methods, told.pauses, told.result) == (["POST"], [], job())

    @pytest.mark.parametrize(
        "trouble",
        [
            BUSY,
            LOST,
            bad(429, "TooManyRequests"),
            bad(500, "InternalError", "failed calling webhook"),
            bad(504, "Timeout"),
            bad(409, "Conflict", 'Operation cannot be fulfilled on resourcequotas "q": modified'),
        ],
        ids=["503", "no-answer", "429", "webhook", "504", "quota-race"],
    )
    def test_is_tried_again(self, trouble: Reply) -> None:
        told = submit(trouble, trouble, good(job(), 201))
        assert (told.methods, told.pauses, told.result) == (["POST"] * 3, [0.75, 1.5], job())

    def test_gives_up_after_two_minutes(self) -> None:
        told = submit(BUSY)
        assert 100 < sum(told.pauses) <= operations.SUBMIT_PATIENCE
        assert str(told.result).startswith("cannot create PyTorchJob ml/train: the cluster failed")
        assert told.result.retryable

    def test_does_not_wait_longer_than_it_has_time(self) -> None:
        later = bad(429, "TooManyRequests", "", retryAfterSeconds=300)
        told = submit(later)
        assert (len(told.calls), told.pauses) == (1, [])
        assert told.result.retry_after == 300

    @pytest.mark.parametrize(
        "refusal", [bad(400), bad(403, "Forbidden", "denied"), bad(413), bad(422)]
    )
    def test_is_not_tried_again_where_it_is_refused(self, refusal: Answer) -> None:
        told = submit(refusal, good(job(), 201))
        assert len(told.calls) == 1
        assert told.result.code == refusal.status

    def test_whose_answer_got_lost_finds_its_own_job(self) -> None:
        told = submit(LOST, EXISTS, good(job(uid="u")))
        assert told.methods == ["POST", "POST", "GET"]
        assert told.result["metadata"]["uid"] == "u"

    @pytest.mark.parametrize(
        ("owner", "whose"),
        [("other", "it belongs to another try (other)"), ("", "it was not created by Airflow")],
    )
    def test_takes_no_job_of_others(self, owner: str, whose: str) -> None:
        told = submit(EXISTS, good(job(owner)))
        assert type(told.result) is Conflict
        assert told.result.reason == "AlreadyExists"
        assert str(told.result) == (
            "cannot create PyTorchJob ml/train: a job of that name already exists; "
            f"{whose}. Choose another name, or delete it."
        )

    def test_without_an_owner_finds_no_job_of_its_own(self) -> None:
        told = submit(EXISTS, good(job("")), manifest=job(""))
        assert type(told.result) is Conflict

    @pytest.mark.parametrize("owner", ["me", "other"])
    def test_waits_until_one_that_goes_is_gone(self, owner: str) -> None:
        going = good(job(owner, deletionTimestamp="2026-11-21T12:00:00Z"))
        told = submit(EXISTS, going, EXISTS, going, good(job(), 201))
        assert told.methods == ["POST", "GET", "POST", "GET", "POST"]
        assert told.pauses == [2, 2]
        assert told.result == job()

    def test_does_not_wait_for_ever_for_one_that_goes(self) -> None:
        going = good(job(deletionTimestamp="2026-11-21T12:00:00Z"))
        told = submit(*[EXISTS, going] * 100)
        assert sum(told.pauses) <= operations.SUBMIT_PATIENCE
        assert type(told.result) is Conflict
        assert "still being deleted after 120 s. Check for a finalizer" in str(told.result)

    def test_that_finds_none_after_all_creates_it(self) -> None:
        told = submit(EXISTS, MISSING, good(job(), 201))
        assert told.methods == ["POST", "GET", "POST"]
        assert told.result == job()


class TestFind:
    def find(self, *replies: Reply) -> Told:
        call = api_calls.get_job(PYTORCH_JOB, "ml", "train")
        return hold(lambda outside: operations.find(call, outside), *replies)

    def test_what_is_there(self) -> None:
        assert self.find(BUSY, good(job())).result == job()

    def test_nothing(self) -> None:
        assert self.find(MISSING).result is None

    def test_a_kind_that_is_not_served_is_not_nothing(self) -> None:
        assert type(self.find(Answer(404, {}, "404 page not found")).result) is NotServed

    def test_gives_up_sooner_than_a_submit(self) -> None:
        assert sum(self.find(BUSY).pauses) <= operations.PATIENCE < operations.SUBMIT_PATIENCE


class TestDelete:
    CHANGED = bad(409, "Conflict", "Precondition failed: whatever the reason")

    def delete(self, *replies: Reply) -> Any:
        call = api_calls.delete_job(PYTORCH_JOB, "ml", "train", uid="u", resource_version="1")
        get = api_calls.get_job(PYTORCH_JOB, "ml", "train")
        return hold(lambda outside: operations.delete(call, get, "u", outside), *replies).result

    def test_is_done(self) -> None:
        assert self.delete(BUSY, good({"kind": "Status", "status": "Success"})) is True

    def test_what_is_gone_is_gone(self) -> None:
        assert self.delete(MISSING) is False
        assert self.delete(self.CHANGED, MISSING) is False

    def test_another_of_that_name_is_not_it(self) -> None:
        assert self.delete(self.CHANGED, good(job(uid="v"))) is False

    def test_one_that_has_changed_stays(self) -> None:
        assert type(self.delete(self.CHANGED, good(job(uid="u")))) is Conflict


class TestPods:
    def pods(self, *replies: Reply) -> Told:
        return hold(lambda outside: operations.pods(PYTORCH_JOB, "ml", "train", outside), *replies)

    def page(self, count: int, token: str = "") -> Answer:
        items = [{"metadata": {"name": str(n)}} for n in range(count)]
        return good({"items": items, "metadata": {"continue": token}})

    def test_are_read_in_pages(self) -> None:
        told = self.pods(self.page(2, "t"), self.page(1))
        assert [pod["metadata"]["name"] for pod in told.result] == ["0", "1", "0"]
        assert [call.query.get("continue") for call in told.calls] == [None, "t"]
        assert told.calls[0].query["labelSelector"] == "training.kubeflow.org/job-name=train"

    def test_are_a_thousand_at_most(self) -> None:
        told = self.pods(self.page(400, "t"))
        assert (len(told.result), len(told.calls)) == (1000, 3)

    def test_pages_are_about_a_mebibyte(self) -> None:
        small, large = Answer(200, {}, "x" * 100), Answer(200, {}, "x" * (4 << 20))
        assert operations.next_limit(small, 1) == 500
        assert operations.next_limit(large, 50) == 12
        assert operations.next_limit(large, 1) == 1
        assert operations.next_limit(small, 0) == operations.FIRST_PAGE

    def test_what_is_no_list_has_none(self) -> None:
        assert self.pods(good({"items": None})).result == []
        assert self.pods(good({"items": [None, 5, {}]})).result == [{}]


class TestEvents:
    def events(self, about: list[str], *replies: Reply) -> Told:
        return hold(lambda outside: operations.events("ml", about, outside), *replies)

    def page(self, **times: str) -> Answer:
        return good(
            {"items": [{"metadata": {"uid": u}, "lastTimestamp": t} for u, t in times.items()]}
        )

    def test_are_in_the_order_of_their_times_and_each_told_once(self) -> None:
        told = self.events(["a", "b", "a"], self.page(x="3", y="1"), self.page(y="1", z="2"))
        assert [event["metadata"]["uid"] for event in told.result] == ["y", "z", "x"]
        assert len(told.calls) == 2

    def test_are_none_where_they_are_forbidden(self) -> None:
        assert self.events(["a"], bad(403, "Forbidden", 'User "x" cannot list')).result == []

    def test_are_asked_for_a_few_objects_only(self) -> None:
        told = self.events([str(n) for n in range(50)], self.page())
        assert len(told.calls) == 8

    def test_without_times_come_first(self) -> None:
        items = good({"items": [{"lastTimestamp": "1"}, {"lastTimestamp": None}, 7]})
        assert [e["lastTimestamp"] for e in self.events(["a"], items).result] == [None, "1"]


class TestMpiVersion:
    NOT_SERVED = Answer(404, {}, "404 page not found")
    SERVED = good({"resources": [{"name": "mpijobs"}, {"name": "mpijobs/status"}]})
    OTHERS = good({"resources": [{"name": "pytorchjobs"}]})

    @pytest.mark.parametrize(
        ("replies", "version"),
        [
            ([SERVED], "v2beta1"),
            ([NOT_SERVED, SERVED], "v1"),
            ([OTHERS, SERVED], "v1"),
        ],
    )
    def test_is_what_is_served(self, replies: list[Reply], version: str) -> None:
        assert hold(operations.mpi_version, *replies).result == version

    @pytest.mark.parametrize("replies", [[NOT_SERVED], [OTHERS], [NOT_SERVED, OTHERS]])
    def test_where_there_is_none_it_says_what_to_install(self, replies: list[Reply]) -> None:
        error = hold(operations.mpi_version, *replies).result
        assert type(error) is NotServed
        assert str(error) == (
            "cannot run an MPIJob: the cluster serves neither MPIJob (kubeflow.org/v2beta1) nor "
            "MPIJob (kubeflow.org/v1). Install mpi-operator or training-operator."
        )


def test_a_text_is_given_as_it_is() -> None:
    call = api_calls.read_log(api_calls.LogQuery("ml", "p", "c"))
    told = hold(
        lambda outside: operations.ask_for_text(call, outside), BUSY, Answer(200, {}, "hello")
    )
    assert told.result == "hello"


def test_pods_of_every_kind_are_selected_by_its_own_labels() -> None:
    told = hold(
        lambda outside: operations.pods(TRAIN_JOB, "ml", "train", outside), good({"items": []})
    )
    assert told.calls[0].query["labelSelector"] == "jobset.sigs.k8s.io/jobset-name=train"


def versions(*served: str) -> Answer:
    return good({"kind": "APIGroup", "versions": [{"version": version} for version in served]})


@pytest.mark.parametrize(
    ("served", "wanted"),
    [
        (("v1beta2", "v1beta1"), "v1beta2"),
        (("v1beta1",), "v1beta1"),
        (("v9", "v1beta1"), "v1beta1"),
    ],
)
def test_workloads_are_read_in_the_newest_version_that_is_known(
    served: tuple[str, ...], wanted: str
) -> None:
    told = hold(operations.workload_kind, versions(*served))
    assert told.result == api_calls.WORKLOAD._replace(version=wanted)
    assert [call.path for call in told.calls] == ["/apis/kueue.x-k8s.io"]


@pytest.mark.parametrize("answer", [versions("v9"), Answer(404, {}, "404 page not found")])
def test_without_a_known_version_of_kueue_there_are_no_workloads(answer: Answer) -> None:
    result = hold(operations.workload_kind, answer).result
    assert isinstance(result, NotServed)
    assert "v9" in str(result) or "Install Kueue" in str(result)
