"""The pods of a role: the template file, then the fields of the job, of the replica, and the
patch."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_kftrain import (
    Elastic,
    FromSecret,
    MPIJob,
    Placement,
    Pod,
    PyTorchJob,
    Replica,
    Resources,
    TFJob,
    build_manifest,
)

from .reading import groups, main, pod, variables

GPU = Resources(cpu=8, gpu=1)
SHM_VOLUME = {"name": "kftrain-shm", "emptyDir": {"medium": "Memory"}}
SHM_MOUNT = {"name": "kftrain-shm", "mountPath": "/dev/shm"}


def pytorch(**given: Any) -> dict[str, Any]:
    explicit = {"workers", "master", "worker", "elastic"} & set(given)
    return build_manifest(
        PyTorchJob(**{"image": "img", **({} if explicit else {"workers": 1}), **given})
    )


def names(spec: dict[str, Any]) -> list[str]:
    return [container["name"] for container in spec["containers"]]


# The main container


@pytest.mark.parametrize(
    ("spec", "role", "name"),
    [
        (PyTorchJob(image="i", workers=1), "Master", "pytorch"),
        (TFJob(image="i", workers=1), "Worker", "tensorflow"),
        (MPIJob(image="i", workers=1), "Launcher", "mpi"),
        (MPIJob(image="i", workers=1, version="v1"), "Worker", "mpi"),
    ],
)
def test_the_main_container_is_called_as_the_kind_demands(spec: Any, role: str, name: str) -> None:
    assert main(build_manifest(spec), role)["name"] == name


def test_what_a_replica_leaves_out_is_the_jobs() -> None:
    manifest = pytorch(
        command=["python", "train.py"],
        args=["--fast"],
        master=Replica(image="master", args=["--slow"]),
        worker=Replica(count=2, command=["python", "worker.py"]),
    )
    first, other = main(manifest, "Master"), main(manifest, "Worker")
    assert (first["image"], first["command"], first["args"]) == (
        "master",
        ["python", "train.py"],
        ["--slow"],
    )
    # The job's arguments belong to the job's command.
    assert (other["image"], other["command"]) == ("img", ["python", "worker.py"])
    assert "args" not in other


def test_variables_of_a_replica_are_joined_with_the_jobs_and_win() -> None:
    manifest = pytorch(
        env={"MODE": "job", "EPOCHS": 3},
        worker=Replica(env={"MODE": "worker", "SHARDS": 2}),
    )
    assert variables(main(manifest, "Master")) == {"MODE": "job", "EPOCHS": "3"}
    assert variables(main(manifest, "Worker")) == {"MODE": "worker", "EPOCHS": "3", "SHARDS": "2"}


def test_a_replicas_variable_takes_the_place_of_a_secret() -> None:
    manifest = pytorch(
        env={"TOKEN": FromSecret("wandb", "key")}, worker=Replica(env={"TOKEN": "none"})
    )
    assert main(manifest)["env"] == [{"name": "TOKEN", "value": "none"}]


def test_a_replica_with_resources_of_its_own_gets_no_gpu_of_the_jobs() -> None:
    manifest = pytorch(
        container_resources=GPU,
        master=Replica(container_resources=Resources(cpu=2)),
        worker=Replica(count=4),
    )
    assert main(manifest, "Master")["resources"] == {
        "requests": {"cpu": "2"},
        "limits": {"cpu": "2"},
    }
    assert main(manifest)["resources"]["limits"] == {"cpu": "8", "nvidia.com/gpu": "1"}


def test_a_replica_may_have_no_resources_at_all() -> None:
    manifest = pytorch(container_resources=GPU, worker=Replica(container_resources=Resources()))
    assert "resources" not in main(manifest)


# The template file


@pytest.fixture
def template(tmp_path: Any) -> str:
    """A pod as users of KubernetesPodOperator have it, with the container "base"."""
    path = tmp_path / "pod.yaml"
    path.write_text(
        """
        apiVersion: v1
        kind: Pod
        metadata:
          name: ignored
          namespace: ignored
          labels: {from: file, team: file}
          annotations: {note: file}
        spec:
          restartPolicy: Always
          nodeSelector: {pool: file}
          serviceAccountName: file
          containers:
            - name: logs
              image: logs:1
            - name: base
              image: file:1
              workingDir: /app
              env:
                - {name: MODE, value: file}
                - {name: TOKEN, valueFrom: {secretKeyRef: {name: s, key: k}}}
              volumeMounts:
                - {name: data, mountPath: /data}
          volumes:
            - name: data
              emptyDir: {}
        """
    )
    return str(path)


def test_the_template_file_is_the_base_of_every_pod(template: str) -> None:
    manifest = build_manifest(PyTorchJob(workers=1, pod=Pod(template_file=template)))
    for role in ("Master", "Worker"):
        spec = pod(manifest, role)
        assert names(spec) == ["pytorch", "logs"]
        assert spec["containers"][0]["image"] == "file:1"
        assert spec["containers"][0]["workingDir"] == "/app"
        assert spec["serviceAccountName"] == "file"
        assert groups(manifest)[role]["template"]["metadata"]["labels"]["from"] == "file"


@pytest.mark.parametrize("nodes", [1, 2])
def test_labels_and_annotations_of_the_file_reach_the_job_as_those_of_the_pod_do(
    nodes: int, tmp_path: Any
) -> None:
    path = tmp_path / "pod.yaml"
    path.write_text(
        "metadata:\n"
        "  labels: {kueue.x-k8s.io/priority-class: high, team: file}\n"
        "  annotations: {example.com/cost: low}\n"
    )
    described = PyTorchJob(
        image="i",
        command=["a"],
        elastic=Elastic(nodes=nodes),
        pod=Pod(template_file=str(path), labels={"team": "mine"}),
        queue_name="gpu",
    )
    metadata = build_manifest(described)["metadata"]
    assert metadata["labels"] == {
        "kueue.x-k8s.io/priority-class": "high",
        "team": "mine",
        "kueue.x-k8s.io/queue-name": "gpu",
    }
    assert metadata["annotations"] == {"example.com/cost": "low"}


def test_labels_of_the_file_of_a_replica_do_not_reach_the_job(tmp_path: Any) -> None:
    path = tmp_path / "worker.yaml"
    path.write_text("metadata: {labels: {from: worker}}\n")
    described = PyTorchJob(image="i", worker=Replica(pod=Pod(template_file=str(path))))
    assert build_manifest(described)["metadata"] == {}


def test_a_pods_own_name_and_restart_policy_do_not_come_with_the_file(template: str) -> None:
    manifest = build_manifest(PyTorchJob(workers=1, pod=Pod(template_file=template)))
    metadata = groups(manifest)["Worker"]["template"]["metadata"]
    assert set(metadata) == {"labels", "annotations"}
    assert "restartPolicy" not in pod(manifest)


def test_the_authors_fields_are_laid_on_the_file(template: str) -> None:
    job = PyTorchJob(
        workers=1,
        image="mine:2",
        env={"TOKEN": "mine", "MORE": "1"},
        pod=Pod(
            template_file=template,
            labels={"team": "mine"},
            service_account="mine",
            placement=Placement(node_selector={"zone": "a"}),
            volumes=[{"name": "data", "nfs": {"server": "s", "path": "/"}}],
            sidecars=[{"name": "metrics", "image": "metrics:1"}],
        ),
    )
    manifest = build_manifest(job)
    spec = pod(manifest)
    container = spec["containers"][0]
    assert names(spec) == ["pytorch", "logs", "metrics"]
    assert container["image"] == "mine:2"
    assert container["workingDir"] == "/app"
    assert container["env"] == [
        {"name": "MODE", "value": "file"},
        {"name": "TOKEN", "value": "mine"},
        {"name": "MORE", "value": "1"},
    ]
    assert spec["serviceAccountName"] == "mine"
    assert spec["nodeSelector"] == {"pool": "file", "zone": "a"}
    assert spec["volumes"][0] == {"name": "data", "nfs": {"server": "s", "path": "/"}}
    labels = groups(manifest)["Worker"]["template"]["metadata"]["labels"]
    assert labels == {"from": "file", "team": "mine"}


@pytest.mark.parametrize(
    ("containers", "main_of_them"),
    [
        (["logs", "pytorch", "base"], "pytorch"),
        (["logs", "main", "primary"], "main"),
        (["logs", "primary"], "primary"),
        (["one", "two"], "one"),
        (["only"], "only"),
    ],
)
def test_which_container_of_the_file_is_the_main_one(
    containers: list[str], main_of_them: str, tmp_path: Any
) -> None:
    path = tmp_path / "pod.yaml"
    listed = "".join(f"\n    - {{name: {name}, image: {name}}}" for name in containers)
    path.write_text(f"spec:\n  containers:{listed}\n")
    manifest = build_manifest(PyTorchJob(workers=1, pod=Pod(template_file=str(path))))
    first, *others = pod(manifest)["containers"]
    assert (first["name"], first["image"]) == ("pytorch", main_of_them)
    assert [item["name"] for item in others] == [
        name for name in containers if name != main_of_them
    ]


def test_a_file_without_containers_is_a_base_too(tmp_path: Any) -> None:
    path = tmp_path / "pod.yaml"
    path.write_text("metadata: {labels: {a: b}}\n")
    manifest = pytorch(pod=Pod(template_file=str(path)))
    assert names(pod(manifest)) == ["pytorch"]


def test_a_replica_may_have_a_file_of_its_own(template: str, tmp_path: Any) -> None:
    path = tmp_path / "worker.yaml"
    path.write_text("spec: {containers: [{name: base, image: worker:1}]}\n")
    manifest = build_manifest(
        PyTorchJob(
            pod=Pod(template_file=template), worker=Replica(pod=Pod(template_file=str(path)))
        )
    )
    assert main(manifest, "Master")["image"] == "file:1"
    assert main(manifest, "Worker")["image"] == "worker:1"


# Shared memory


@pytest.mark.parametrize(
    ("spec", "volume"),
    [
        (PyTorchJob(image="i", workers=1), SHM_VOLUME),
        (PyTorchJob(image="i", workers=1, pod=Pod(shared_memory=True)), SHM_VOLUME),
        (TFJob(image="i", workers=1, pod=Pod(shared_memory="True")), SHM_VOLUME),
        (
            PyTorchJob(image="i", workers=1, pod=Pod(shared_memory="2Gi")),
            {"name": "kftrain-shm", "emptyDir": {"medium": "Memory", "sizeLimit": "2Gi"}},
        ),
    ],
)
def test_shared_memory_is_a_volume_in_memory(spec: Any, volume: dict[str, Any]) -> None:
    manifest = build_manifest(spec)
    assert pod(manifest)["volumes"] == [volume]
    assert main(manifest)["volumeMounts"] == [SHM_MOUNT]


@pytest.mark.parametrize(
    "spec",
    [
        PyTorchJob(image="i", workers=1, pod=Pod(shared_memory=False)),
        TFJob(image="i", workers=1),
        MPIJob(image="i", workers=1),
    ],
)
def test_no_shared_memory_where_it_is_not_wanted(spec: Any) -> None:
    manifest = build_manifest(spec)
    assert "volumes" not in pod(manifest)
    assert "volumeMounts" not in main(manifest)


@pytest.mark.parametrize("path", ["/dev/shm", "/dev/shm/"])
def test_the_default_gives_way_to_what_the_author_mounts_there(path: str) -> None:
    own = Pod(
        volumes=[{"name": "own", "emptyDir": {"medium": "Memory"}}],
        volume_mounts=[{"name": "own", "mountPath": path}],
    )
    manifest = pytorch(pod=own)
    assert [volume["name"] for volume in pod(manifest)["volumes"]] == ["own"]


def test_a_replica_may_have_other_shared_memory() -> None:
    manifest = pytorch(worker=Replica(pod=Pod(shared_memory=False)))
    assert "volumes" in pod(manifest, "Master")
    assert "volumes" not in pod(manifest, "Worker")


# Sidecars and the patch


def test_sidecars_are_kept_behind_the_main_container() -> None:
    manifest = pytorch(pod=Pod(sidecars=[{"name": "side", "image": "side:1"}]))
    assert names(pod(manifest)) == ["pytorch", "side"]


def test_the_patch_comes_last() -> None:
    patch = {
        "metadata": {"labels": {"patched": "yes"}},
        "spec": {
            "hostNetwork": True,
            "serviceAccountName": None,
            "containers": [{"name": "pytorch", "image": "patched", "env": None}],
        },
    }
    manifest = pytorch(
        env={"A": "1"}, pod=Pod(patch=patch, service_account="mine", labels={"own": "yes"})
    )
    spec = pod(manifest)
    assert spec["hostNetwork"] is True
    assert "serviceAccountName" not in spec
    assert spec["containers"][0]["image"] == "patched"
    assert "env" not in spec["containers"][0]
    labels = groups(manifest)["Worker"]["template"]["metadata"]["labels"]
    assert labels == {"own": "yes", "patched": "yes"}


def test_a_patch_may_name_a_container_of_the_file(template: str) -> None:
    patch = {"spec": {"containers": [{"name": "logs", "tty": True}]}}
    manifest = build_manifest(PyTorchJob(workers=1, pod=Pod(template_file=template, patch=patch)))
    assert pod(manifest)["containers"][1]["tty"] is True


def test_a_patch_may_bring_a_volume_and_its_mount() -> None:
    patch = {
        "spec": {
            "volumes": [{"name": "data", "emptyDir": {}}],
            "containers": [
                {"name": "pytorch", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}
            ],
        }
    }
    manifest = pytorch(pod=Pod(patch=patch))
    assert [mount["name"] for mount in main(manifest)["volumeMounts"]] == ["kftrain-shm", "data"]


def test_the_placement_is_written_in_the_words_of_a_pod() -> None:
    placed = Placement(
        node_selector={"pool": "gpu"},
        tolerations=[{"key": "gpu", "operator": "Exists"}],
        affinity={"nodeAffinity": {}},
        priority_class="high",
        scheduler_name="volcano",
    )
    spec = pod(pytorch(pod=Pod(placement=placed, image_pull_secrets=["registry"])))
    assert {key: spec[key] for key in spec if key not in ("containers", "volumes")} == {
        "nodeSelector": {"pool": "gpu"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "priorityClassName": "high",
        "schedulerName": "volcano",
        "imagePullSecrets": [{"name": "registry"}],
    }
