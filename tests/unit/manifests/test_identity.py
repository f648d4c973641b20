"""The owner of a job: the identity, the digest, and everything that is written on a job and its
pods."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_kftrain import (
    Elastic,
    FromField,
    InvalidSpec,
    MPIJob,
    Owner,
    Pod,
    PyTorchJob,
    RawManifest,
    Replica,
    RunPolicy,
    TrainJob,
    build_manifest,
)
from airflow_kftrain.manifests.identity import manifest_digest

from .generated_specs import given_jobs, owners, short_ids
from .rich_specs import rich_specs

OWNER = Owner(
    instance="https://airflow.example.com",
    dag_id="nightly",
    task_id="train",
    run_id="scheduled__2026-11-20T00:00:00+00:00",
    ti_id="0199b4a0-0001",
)
LEGAL_LABEL = re.compile(r"(?:[A-Za-z0-9](?:[-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?)?")
settle = settings(deadline=None, max_examples=60)

# Two texts next to each other: any separator may also occur in them.
awkward = st.text('ab,"/\\|-_.[] ', max_size=6)


def pytorch(**given: Any) -> PyTorchJob:
    return PyTorchJob(**{"image": "img", "workers": 1, **given})


def owned(spec: Any, owner: Owner = OWNER) -> dict[str, Any]:
    return build_manifest(spec, owner=owner)


def templates(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    for key, groups in manifest["spec"].items():
        if key.endswith("ReplicaSpecs"):
            return [group["template"] for group in groups.values()]
    return [manifest["spec"]["template"]]


def containers(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        container
        for template in templates(manifest)
        for key in ("containers", "initContainers")
        for container in template["spec"].get(key, [])
    ]


def variables(container: dict[str, Any]) -> dict[str, Any]:
    return {item["name"]: item.get("value") for item in container["env"]}


# The identity


@settle
@given(owners, short_ids, st.integers(1, 9), st.integers(0, 9))
def test_all_tries_of_a_task_instance_have_one_identity(
    owner: Owner, ti_id: str, try_number: int, clears: int
) -> None:
    other = owner._replace(ti_id=ti_id, try_number=try_number, clears=clears)
    assert other.identity == owner.identity


@settle
@given(
    st.tuples(awkward, awkward, awkward, awkward, st.integers(-1, 2)),
    st.tuples(awkward, awkward, awkward, awkward, st.integers(-1, 2)),
)
def test_whatever_else_differs_makes_another_identity(one: Any, other: Any) -> None:
    def identity(parts: Any) -> str:
        instance, dag_id, task_id, run_id, map_index = parts
        return Owner(instance, dag_id, task_id, run_id, "ti", map_index=map_index).identity

    assert (identity(one) == identity(other)) == (one == other)


def test_text_cannot_cross_from_one_part_into_the_next() -> None:
    assert (
        OWNER._replace(dag_id="a", run_id="b_c").identity
        != OWNER._replace(dag_id="a_b", run_id="c").identity
    )
    assert (
        OWNER._replace(dag_id='a", "b', run_id="c").identity
        != OWNER._replace(dag_id="a", run_id='b", "c').identity
    )


def test_without_a_region_the_identity_stays_what_it_was() -> None:
    """Jobs in the cluster outlive an upgrade of this package, and of Airflow."""
    assert OWNER.identity == "3589c0f783a320676440ca91aa161919"
    assert OWNER._replace(map_index=3).identity == "6385081e3ec3cd11491c5c7dc97398b2"


def test_iterations_of_a_task_loop_differ_by_their_region_alone() -> None:
    first = OWNER._replace(region_id="0199b4a0-00aa", region_index=0)
    others = [OWNER, first._replace(region_index=1), first._replace(region_id="0199b4a0-00bb")]
    assert len({first.identity, *(other.identity for other in others)}) == 4


# The digest


def shuffled(value: Any) -> Any:
    """The same, with the keys of every mapping in reverse order."""
    if isinstance(value, dict):
        return {key: shuffled(value[key]) for key in reversed(list(value))}
    if isinstance(value, list):
        return [shuffled(item) for item in value]
    return value


def digest_in(manifest: dict[str, Any]) -> Any:
    return manifest["metadata"]["annotations"]["airflow-kftrain/digest"]


@settle
@given(given_jobs)
def test_a_digest_does_not_depend_on_the_order_of_keys(job: Any) -> None:
    spec_type, arguments = job
    manifest = build_manifest(spec_type(**arguments))
    assert manifest_digest(shuffled(manifest)) == manifest_digest(manifest)


@settle
@given(given_jobs, owners, owners)
def test_a_digest_is_blind_to_the_owner(job: Any, one: Owner, other: Owner) -> None:
    spec_type, arguments = job
    spec = spec_type(**arguments)
    digest = manifest_digest(build_manifest(spec))
    assert digest_in(owned(spec, one)) == digest_in(owned(spec, other)) == digest


@pytest.mark.parametrize("key", ["name", "generateName"])
def test_a_digest_is_blind_to_the_name(key: str) -> None:
    manifest = build_manifest(pytorch())
    named = {**manifest, "metadata": {**manifest["metadata"], key: "mine"}}
    assert manifest_digest(named) == manifest_digest(manifest)


@pytest.mark.parametrize(
    "change",
    [
        {"image": "img:2"},
        {"workers": 2},
        {"command": ["python"]},
        {"args": ["a"]},
        {"env": {"A": "1"}},
        {"queue_name": "q"},
        {"run_policy": RunPolicy(backoff_limit=1)},
        {"pod": Pod(labels={"a": "b"})},
        {"pod": Pod(annotations={"a": "b"})},
    ],
)
def test_a_digest_differs_when_anything_else_does(change: dict[str, Any]) -> None:
    changed = build_manifest(pytorch(**change))
    assert manifest_digest(changed) != manifest_digest(build_manifest(pytorch()))


def test_a_digest_sees_the_namespace_and_the_order_of_lists() -> None:
    one = build_manifest(pytorch(command=["a", "b"]), namespace="ml")
    assert manifest_digest(one) != manifest_digest(build_manifest(pytorch(command=["a", "b"])))
    assert manifest_digest(one) != manifest_digest(
        build_manifest(pytorch(command=["b", "a"]), namespace="ml")
    )


# What is written on the resource


def test_the_resource_says_whose_it_is() -> None:
    owner = OWNER._replace(map_index=3, try_number=2, clears=1)
    metadata = owned(pytorch(), owner)["metadata"]
    assert metadata["labels"] == {
        "airflow-kftrain/instance": metadata["labels"]["airflow-kftrain/instance"],
        "airflow-kftrain/identity": owner.identity,
        "dag_id": "nightly",
        "task_id": "train",
        "run_id": metadata["labels"]["run_id"],
        "map_index": "3",
    }
    assert metadata["annotations"] == {
        "airflow-kftrain/owner": "0199b4a0-0001",
        "airflow-kftrain/try": "2",
        "airflow-kftrain/clears": "1",
        "airflow-kftrain/instance": "https://airflow.example.com",
        "airflow-kftrain/dag-id": "nightly",
        "airflow-kftrain/task-id": "train",
        "airflow-kftrain/run-id": "scheduled__2026-11-20T00:00:00+00:00",
        "airflow-kftrain/map-index": "3",
        "airflow-kftrain/digest": metadata["annotations"]["airflow-kftrain/digest"],
    }
    assert re.fullmatch(r"nightly-train-3-[0-9a-f]{10}", metadata["name"])


def test_an_iteration_of_a_task_loop_says_which_it_is() -> None:
    owner = OWNER._replace(region_id="0199b4a0-00aa", region_index=2)
    metadata = owned(pytorch(), owner)["metadata"]
    assert metadata["annotations"]["airflow-kftrain/region-id"] == "0199b4a0-00aa"
    assert metadata["annotations"]["airflow-kftrain/region-index"] == "2"


def test_a_task_that_is_not_mapped_has_no_label_of_a_map_index() -> None:
    assert "map_index" not in owned(pytorch())["metadata"]["labels"]


@settle
@given(given_jobs, owners)
def test_labels_are_legal_whatever_the_ids(job: Any, owner: Owner) -> None:
    spec_type, arguments = job
    labels = owned(spec_type(**arguments), owner)["metadata"]["labels"]
    assert [value for value in labels.values() if not LEGAL_LABEL.fullmatch(value)] == []


def test_the_authors_labels_and_annotations_stay() -> None:
    manifest = owned(pytorch(pod=Pod(labels={"team": "vision"}, annotations={"note": "mine"})))
    for metadata in (manifest["metadata"], *(item["metadata"] for item in templates(manifest))):
        assert metadata["labels"]["team"] == "vision"
        assert metadata["annotations"]["note"] == "mine"


def test_nobody_can_pretend_to_be_another_owner() -> None:
    forged = {"airflow-kftrain/identity": "other", "dag_id": "other"}
    manifest = owned(
        pytorch(pod=Pod(labels=forged, annotations={"airflow-kftrain/owner": "other"}))
    )
    for metadata in (manifest["metadata"], *(item["metadata"] for item in templates(manifest))):
        assert metadata["labels"]["airflow-kftrain/identity"] == OWNER.identity
        assert metadata["labels"]["dag_id"] == "nightly"
    assert manifest["metadata"]["annotations"]["airflow-kftrain/owner"] == OWNER.ti_id


@pytest.mark.parametrize("key", ["name", "generateName"])
def test_a_manifests_own_name_stays_readable_in_the_new_one(key: str) -> None:
    spec_type, given = rich_specs()["raw XGBoostJob"]
    raw = given["manifest"]
    raw["metadata"] = {key: "Weekly_Trees-"}
    metadata = owned(spec_type(**given))["metadata"]
    assert re.fullmatch(r"weekly-trees-[0-9a-f]{10}", metadata["name"])
    assert "generateName" not in metadata


def test_without_an_owner_a_manifest_keeps_its_name() -> None:
    spec_type, given = rich_specs()["raw Job"]
    assert build_manifest(spec_type(**given))["metadata"]["name"] == "nightly"


def test_the_namespace_is_written() -> None:
    assert build_manifest(pytorch(), namespace="ml")["metadata"]["namespace"] == "ml"


def test_an_illegal_namespace_is_refused() -> None:
    with pytest.raises(InvalidSpec) as caught:
        build_manifest(pytorch(), namespace="My Team")
    assert caught.value.field == "namespace"


# What is written on the pods


def test_every_pod_has_the_labels_of_the_resource() -> None:
    manifest = owned(pytorch())
    labels = manifest["metadata"]["labels"]
    assert len(templates(manifest)) == 2
    for template in templates(manifest):
        assert template["metadata"]["labels"] == labels


def test_the_queue_label_is_on_the_resource_only() -> None:
    manifest = owned(pytorch(queue_name="team-a"))
    assert manifest["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team-a"
    for template in templates(manifest):
        assert "kueue.x-k8s.io/queue-name" not in template["metadata"]["labels"]


def test_every_container_knows_the_run_and_the_attempt() -> None:
    pod = Pod(
        init_containers=[{"name": "first", "image": "img"}],
        sidecars=[{"name": "side", "image": "img"}],
    )
    manifest = owned(pytorch(pod=pod), OWNER._replace(try_number=2))
    assert len(containers(manifest)) == 6
    for container in containers(manifest):
        assert variables(container) == {
            "AIRFLOW_CTX_DAG_ID": "nightly",
            "AIRFLOW_CTX_TASK_ID": "train",
            "AIRFLOW_CTX_DAG_RUN_ID": "scheduled__2026-11-20T00:00:00+00:00",
            "AIRFLOW_CTX_TRY_NUMBER": "2",
            "KFTRAIN_RUN_ID": OWNER.identity,
            "KFTRAIN_ATTEMPT": "2",
            "KFTRAIN_RESULT_FILE": "/dev/termination-log",
            "PYTHONUNBUFFERED": "1",
        }


def test_the_run_id_is_the_same_for_every_try() -> None:
    first = owned(pytorch())
    second = owned(pytorch(), OWNER._replace(ti_id="other", try_number=2))
    run_ids = {
        variables(container)["KFTRAIN_RUN_ID"]
        for manifest in (first, second)
        for container in containers(manifest)
    }
    assert run_ids == {OWNER.identity}
    assert first["metadata"]["name"] != second["metadata"]["name"]


def test_the_authors_variables_win() -> None:
    env = {"KFTRAIN_RUN_ID": "mine", "KFTRAIN_RESULT_FILE": FromField("metadata.name")}
    for container in containers(owned(pytorch(env=env))):
        named = [item for item in container["env"] if item["name"] in env]
        assert named == [
            {"name": "KFTRAIN_RUN_ID", "value": "mine"},
            {
                "name": "KFTRAIN_RESULT_FILE",
                "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}},
            },
        ]


def test_the_result_file_is_where_the_termination_message_is_read() -> None:
    patch = {"spec": {"containers": [{"name": "pytorch", "terminationMessagePath": "/tmp/end"}]}}
    for container in containers(owned(pytorch(pod=Pod(patch=patch)))):
        assert variables(container)["KFTRAIN_RESULT_FILE"] == "/tmp/end"


def test_a_train_jobs_pods_are_marked_through_a_patch_of_its_runtime() -> None:
    manifest = owned(TrainJob(runtime="torch"))
    (patch,) = manifest["spec"]["runtimePatches"]
    (job,) = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    assert patch["manager"] == "airflow-kftrain/provider"
    assert job["name"] == "node"
    metadata = job["template"]["spec"]["template"]["metadata"]
    assert metadata["labels"] == manifest["metadata"]["labels"]
    assert variables(manifest["spec"]["trainer"])["KFTRAIN_RUN_ID"] == OWNER.identity


@pytest.mark.parametrize("others", [[], ["dataset-initializer"], ["launcher"]])
def test_a_patch_of_ours_in_a_manifest_is_completed_for_the_trainers_pods(
    others: list[str],
) -> None:
    """Under a runtime with MPI these are the launcher's, too."""
    jobs: list[Any] = [{"name": name} for name in others]
    ours = {
        "manager": "airflow-kftrain/provider",
        "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}},
    }
    spec = {"runtimeRef": {"name": "torch"}, "runtimePatches": [ours]}
    raw = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "spec": spec}
    (patch,) = owned(RawManifest(raw))["spec"]["runtimePatches"]
    jobs = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    assert [job["name"] for job in jobs] == [*others, "node"]
    marked = [job for job in jobs if "template" in job]
    assert [job["name"] for job in marked] == [name for name in others if "-" not in name] + [
        "node"
    ]
    for job in marked:
        assert job["template"]["spec"]["template"]["metadata"]["labels"]["dag_id"] == "nightly"


# The rendezvous of an elastic job


def test_elastic_nodes_find_each_other_by_the_name_of_the_job() -> None:
    manifest = owned(PyTorchJob(image="img", elastic=Elastic(nodes=2)))
    assert manifest["spec"]["elasticPolicy"]["rdzvId"] == manifest["metadata"]["name"]


def test_the_authors_name_of_the_rendezvous_stays() -> None:
    manifest = owned(PyTorchJob(image="img", elastic=Elastic(nodes=2, rdzv_id="ours")))
    assert manifest["spec"]["elasticPolicy"]["rdzvId"] == "ours"


def test_a_job_that_is_not_elastic_gets_no_rendezvous() -> None:
    assert "elasticPolicy" not in owned(pytorch())["spec"]


@pytest.mark.parametrize(
    "spec", [pytorch(), MPIJob(image="img", workers=2), MPIJob(image="i", workers=2, version="v1")]
)
def test_the_same_try_always_makes_the_same_job(spec: Any) -> None:
    assert owned(spec) == owned(spec)


def test_replicas_of_their_own_are_marked_alike() -> None:
    job = PyTorchJob(
        image="img",
        master=Replica(pod=Pod(labels={"role": "first"})),
        worker=Replica(count=2, env={"KFTRAIN_ATTEMPT": "7"}),
    )
    master, worker = templates(owned(job))
    assert master["metadata"]["labels"]["role"] == "first"
    assert worker["metadata"]["labels"]["airflow-kftrain/identity"] == OWNER.identity
    assert variables(worker["spec"]["containers"][0])["KFTRAIN_ATTEMPT"] == "7"
