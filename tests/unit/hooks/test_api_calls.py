"""hooks/api_calls.py: the calls."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from airflow_kftrain.errors import InvalidSpec
from airflow_kftrain.hooks import api_calls
from airflow_kftrain.hooks.api_calls import POD, LogQuery
from airflow_kftrain.kinds import BATCH_JOB, KINDS, PYTORCH_JOB, TRAIN_JOB

JOBS = "/apis/kubeflow.org/v1/namespaces/ml/pytorchjobs"
JOB = {"metadata": {"name": "train", "namespace": "ml"}, "spec": {}}


def test_a_job_is_created_strictly_and_in_our_name() -> None:
    call = api_calls.create_job(PYTORCH_JOB, JOB)
    assert (call.method, call.path) == ("POST", JOBS)
    assert call.query == {"fieldValidation": "Strict", "fieldManager": "airflow-kftrain"}
    assert call.body == JOB
    assert call.doing == "create PyTorchJob ml/train"


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind.kind}-{kind.version}")
def test_every_kind_has_its_place(kind: api_calls.JobKind) -> None:
    call = api_calls.get_job(kind, "ml", "train")
    assert call.method == "GET"
    assert call.path == (f"/apis/{kind.group}/{kind.version}/namespaces/ml/{kind.plural}/train")
    assert call.operator == kind.operator


def test_pods_belong_to_no_group() -> None:
    assert api_calls.list_page(POD, "ml", limit=5).path == "/api/v1/namespaces/ml/pods"


def test_a_patch_is_a_strict_merge_patch() -> None:
    call = api_calls.patch_job(TRAIN_JOB, "ml", "train", {"metadata": {"resourceVersion": "5"}})
    assert (call.method, call.content_type) == ("PATCH", "application/merge-patch+json")
    assert call.query["fieldValidation"] == "Strict"
    assert call.body == {"metadata": {"resourceVersion": "5"}}


def test_all_conditions_of_a_delete_stand_in_its_body() -> None:
    call = api_calls.delete_job(PYTORCH_JOB, "ml", "train", uid="u", resource_version="7")
    assert (call.method, call.path, dict(call.query)) == ("DELETE", f"{JOBS}/train", {})
    assert call.body == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": "u", "resourceVersion": "7"},
        "propagationPolicy": "Background",
    }


def test_a_train_job_is_never_deleted_in_the_foreground() -> None:
    """The Trainer would recreate its pods until it is gone."""
    call = api_calls.delete_job(TRAIN_JOB, "ml", "train", uid="u", foreground=True)
    assert call.body["propagationPolicy"] == "Background"


def test_a_delete_in_the_foreground_of_any_version() -> None:
    call = api_calls.delete_job(BATCH_JOB, "ml", "train", uid="u", foreground=True)
    assert call.body["preconditions"] == {"uid": "u"}
    assert call.body["propagationPolicy"] == "Foreground"


def test_a_page_says_what_it_selects_and_where_it_goes_on() -> None:
    first = api_calls.list_page(PYTORCH_JOB, "ml", "a=b", "metadata.name=x", limit=50)
    assert first.query == {
        "labelSelector": "a=b",
        "fieldSelector": "metadata.name=x",
        "limit": "50",
    }
    assert first.doing == "list PyTorchJobs in namespace ml"
    assert api_calls.list_page(POD, "ml", limit=1, token="t").query == {
        "limit": "1",
        "continue": "t",
    }


def test_a_watch_has_bookmarks_a_version_and_an_end() -> None:
    call = api_calls.watch(PYTORCH_JOB, "ml", "a=b", "", "17", 0.2)
    assert call.query == {
        "labelSelector": "a=b",
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": "17",
        "timeoutSeconds": "1",
    }


def test_a_log_is_asked_for_by_its_container() -> None:
    call = api_calls.read_log(LogQuery("ml", "train-master-0", "pytorch"))
    assert call.path == "/api/v1/namespaces/ml/pods/train-master-0/log"
    assert call.query == {"container": "pytorch"}
    assert call.doing == "read the log of pod ml/train-master-0"


def test_a_log_may_be_of_the_container_before_from_a_moment_on() -> None:
    since = datetime(2026, 11, 21, 13, tzinfo=timezone(timedelta(hours=1)))
    asked = LogQuery("ml", "p", "c", previous=True, since=since, timestamps=True, follow=True)
    assert api_calls.read_log(asked).query == {
        "container": "c",
        "previous": "true",
        "follow": "true",
        "timestamps": "true",
        "sinceTime": "2026-11-21T12:00:00.000000Z",
    }


def test_the_first_bytes_of_a_log_are_cut_by_the_server() -> None:
    call = api_calls.read_log(LogQuery("ml", "p", "c", limit_bytes=100))
    assert call.query["limitBytes"] == "100"


def test_the_last_bytes_of_a_tail_are_kept_by_us() -> None:
    """The server would keep its first bytes."""
    call = api_calls.read_log(LogQuery("ml", "p", "c", tail_lines=10, limit_bytes=100))
    assert call.query["tailLines"] == "10"
    assert int(call.query["limitBytes"]) > 1_000_000
    assert call.last_bytes == 100


@pytest.mark.parametrize(
    ("about", "selector"),
    [
        ("train-worker-0", "involvedObject.name=train-worker-0"),
        (
            "0b5b2d0e-6f3e-4a8e-9a53-2f9d8c7b6a51",
            "involvedObject.uid=0b5b2d0e-6f3e-4a8e-9a53-2f9d8c7b6a51",
        ),
        # As long as a uid, but not one.
        (
            "train-x-y-z-worker-0-with-a-long-nam",
            "involvedObject.name=train-x-y-z-worker-0-with-a-long-nam",
        ),
    ],
)
def test_events_are_about_a_uid_or_a_name(about: str, selector: str) -> None:
    assert api_calls.list_events("ml", about, 50).query == {
        "fieldSelector": selector,
        "limit": "50",
    }


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "UPPER", "a b", "-a", "x" * 254])
def test_a_name_that_would_lead_elsewhere_is_refused(name: str) -> None:
    with pytest.raises(InvalidSpec, match="namespace: is not a valid name"):
        api_calls.list_page(PYTORCH_JOB, name, limit=1)
    if name:  # without a name it is a list
        with pytest.raises(InvalidSpec, match="name: is not a valid name"):
            api_calls.get_job(PYTORCH_JOB, "ml", name)


def test_an_object_without_a_name_is_not_asked_for() -> None:
    for make in (api_calls.get_job, lambda *place: api_calls.delete_job(*place, uid="u")):
        with pytest.raises(InvalidSpec, match="name: is not a valid name"):
            make(PYTORCH_JOB, "ml", "")
    with pytest.raises(InvalidSpec, match="name: is not a valid name"):
        api_calls.patch_job(PYTORCH_JOB, "ml", "", {})


def test_a_right_is_asked_for_by_its_attributes() -> None:
    call = api_calls.review_access({"verb": "get", "resource": "pods"})
    assert call.path == "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    assert call.body["spec"] == {"resourceAttributes": {"verb": "get", "resource": "pods"}}


def test_discovery_is_asked_for_by_version() -> None:
    assert api_calls.served_kinds("kubeflow.org", "v1").path == "/apis/kubeflow.org/v1"
    assert api_calls.get_version().path == "/version"
    assert api_calls.served_versions("kueue.x-k8s.io").path == "/apis/kueue.x-k8s.io"


def test_what_else_the_doctor_looks_at() -> None:
    assert api_calls.get_namespace("ml").path == "/api/v1/namespaces/ml"
    assert api_calls.get_service("ml", "s").path == "/api/v1/namespaces/ml/services/s"
    assert api_calls.list_webhooks("validatingwebhookconfigurations").path == (
        "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    )


def test_only_lists_may_be_of_all_namespaces() -> None:
    call = api_calls.list_page(PYTORCH_JOB, api_calls.ALL_NAMESPACES, limit=1)
    assert call.path == "/apis/kubeflow.org/v1/pytorchjobs"
    assert call.doing == "list PyTorchJobs in all namespaces"
    with pytest.raises(InvalidSpec, match="namespace: is not a valid name"):
        api_calls.get_job(PYTORCH_JOB, api_calls.ALL_NAMESPACES, "train")


@pytest.mark.parametrize(
    ("call", "verb"),
    [
        (api_calls.create_job(PYTORCH_JOB, JOB), "create"),
        (api_calls.get_job(PYTORCH_JOB, "ml", "train"), "get"),
        (api_calls.patch_job(PYTORCH_JOB, "ml", "train", {}), "patch"),
        (api_calls.delete_job(PYTORCH_JOB, "ml", "train", uid="u"), "delete"),
        (api_calls.list_page(POD, "ml", limit=1), "list"),
        (api_calls.watch(POD, "ml", "", "", "1", 1), "watch"),
        (api_calls.read_log(LogQuery("ml", "p", "c")), "get"),
        (api_calls.list_events("ml", "p", 1), "list"),
        (api_calls.review_access({}), "create"),
        (api_calls.list_webhooks("validatingwebhookconfigurations"), "list"),
        (api_calls.get_version(), "get"),
    ],
    ids=lambda value: value.doing if isinstance(value, api_calls.Call) else "",
)
def test_the_verb_is_that_of_a_role(call: api_calls.Call, verb: str) -> None:
    assert call.verb == verb
