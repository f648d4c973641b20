"""Files of authors."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from airflow_kftrain import InvalidSpec, Pod, PyTorchJob, RawManifest, Replica, build_manifest
from airflow_kftrain.manifests import check_given

JOB = """
    apiVersion: kubeflow.org/v1
    kind: JAXJob
    spec:
      jaxReplicaSpecs:
        Worker:
          replicas: 2
          template:
            spec:
              containers: [{name: jax, image: img}]
"""
JSON = (
    '{"apiVersion": "kubeflow.org/v1", "kind": "JAXJob", "spec": {"jaxReplicaSpecs": {"Worker": '
    '{"replicas": 2, "template": {"spec": {"containers": [{"name": "jax", "image": "img"}]}}}}}}'
)


def built_from(source: Any) -> dict[str, Any]:
    return build_manifest(RawManifest(source))


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(JOB, id="YAML"),
        pytest.param(dedent(JOB), id="YAML without indentation"),
        pytest.param(f"---\n{dedent(JOB)}\n---\n", id="with empty documents"),
        pytest.param(JSON, id="JSON"),
    ],
)
def test_a_manifest_may_be_text(text: str) -> None:
    assert built_from(text) == built_from(JSON)


@pytest.mark.parametrize("ending", ["yaml", "yml", "json"])
def test_a_manifest_may_be_the_path_of_a_file(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"job.{ending}"
    path.write_text(JSON if ending == "json" else dedent(JOB))
    assert built_from(f" {path} ") == built_from(JSON)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda path: None, "cannot be read: No such file or directory"),
        (lambda path: path.mkdir(), "cannot be read: Is a directory"),
        (lambda path: path.write_bytes(b"\xff\xfe"), "is not the path of a UTF-8 text file"),
        (lambda path: path.write_text("[1, 2]"), "must contain a mapping, but contains a list"),
        (lambda path: path.write_text(""), "must contain one mapping, but contains 0 documents"),
        (lambda path: path.write_text("a: 1\n---\nb: 2\n"), "but contains 2 documents"),
        (lambda path: path.write_text("a: [hunter2\n"), "is not YAML in line"),
        (lambda path: path.write_text("a: !secret hunter2\n"), "is not YAML in line 1"),
        (lambda path: path.write_text("a: \x01hunter2\n"), "is not YAML"),
    ],
)
@pytest.mark.parametrize("field", ["manifest", "pod.template_file", "worker.pod.template_file"])
def test_a_file_that_cannot_be_used_is_named(
    field: str, make: Any, says: str, tmp_path: Path
) -> None:
    path = tmp_path / "job.yaml"
    make(path)
    pod = Pod(template_file=str(path))
    specs: dict[str, Any] = {
        "manifest": RawManifest(str(path)),
        "pod.template_file": PyTorchJob(image="i", workers=1, pod=pod),
        "worker.pod.template_file": PyTorchJob(image="i", worker=Replica(pod=pod)),
    }
    with pytest.raises(InvalidSpec) as caught:
        build_manifest(specs[field])
    assert caught.value.field == field
    assert says in str(caught.value)
    assert "job.yaml" in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("template", "field"),
    [
        ("spec: {containers: {name: base}}", "pod.template_file.spec.containers"),
        ("spec: {containers: [{name: base, img: a}]}", "pod.template_file.spec.containers[0].img"),
        ("spec: {replicas: 3}", "pod.template_file.spec.replicas"),
        (
            "spec: {containers: [{name: base}, {name: logs}]}",
            "pod.template_file.spec.containers[1].image",
        ),
        (
            "spec: {containers: [{name: base}], volumes: [{name: a}, {name: a}]}",
            "pod.template_file.spec.volumes[1].name",
        ),
        (
            "metadata: {labels: {kueue.x-k8s.io/queue-name: q}}",
            "pod.template_file.metadata.labels['kueue.x-k8s.io/queue-name']",
        ),
        (
            "spec: {containers: [{name: base, env: [{name: A}, {name: A}]}]}",
            "pod.template_file.spec.containers[0].env[1].name",
        ),
    ],
)
def test_a_mistake_within_a_template_file_is_found_there(
    template: str, field: str, tmp_path: Path
) -> None:
    path = tmp_path / "pod.yaml"
    path.write_text(template)
    with pytest.raises(InvalidSpec) as caught:
        build_manifest(PyTorchJob(image="i", workers=1, pod=Pod(template_file=str(path))))
    assert caught.value.field == field


def test_a_sidecar_is_told_apart_from_a_container_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "pod.yaml"
    path.write_text("spec: {containers: [{name: base}, {name: logs, image: i}]}")
    sidecars = [{"name": "a", "image": "i"}, {"name": "logs", "image": "i"}]
    with pytest.raises(InvalidSpec) as caught:
        build_manifest(
            PyTorchJob(image="i", workers=1, pod=Pod(template_file=str(path), sidecars=sidecars))
        )
    assert caught.value.field == "pod.sidecars[1].name"


# No file is read when a DAG file is parsed: it is on the worker, and its path may be a template.


def test_a_file_is_not_read_at_parse() -> None:
    check_given(RawManifest, {"manifest": "/nowhere/job.yaml"})
    check_given(PyTorchJob, {"workers": 1, "pod": Pod(template_file="/nowhere/pod.yaml")})


def test_what_a_file_may_bring_is_not_missed_at_parse() -> None:
    unread = Pod(
        template_file="/nowhere/pod.yaml",
        volume_mounts=[{"name": "of-the-file", "mountPath": "/data"}],
        patch={"spec": {"containers": [{"name": "of-the-file", "tty": True}]}},
    )
    check_given(PyTorchJob, {"workers": 1, "pod": unread})
    check_given(PyTorchJob, {"worker": Replica(pod=unread), "image": "img"})


def test_text_is_checked_at_parse_unless_it_is_a_template() -> None:
    with pytest.raises(InvalidSpec, match="Did you mean 'spec'"):
        check_given(
            RawManifest, {"manifest": JOB.replace("    spec:\n      jax", "    sepc:\n      jax")}
        )
    check_given(RawManifest, {"manifest": "kind: {{ params.kind }}\nsepc: {}\n"})


@pytest.mark.parametrize("source", [{"kind": "PyTorchJob"}, "job.yaml", None])
def test_only_a_spec_can_be_built(source: Any) -> None:
    with pytest.raises(TypeError, match="built from a spec"):
        build_manifest(source)


@pytest.mark.parametrize(
    "line",
    [
        "day: 2026-02-30",
        "a: !!int hunter2",
        "a: !!timestamp hunter2",
        "password: !hunter2 x",
        "a: *hunter2",
        "a: &a {hunter2: *a}",
        "a: &a [[*a]]",
        "hunter2: [1",
    ],
)
def test_what_yaml_cannot_hold_is_refused_without_being_shown(line: str) -> None:
    with pytest.raises(InvalidSpec) as refused:
        build_manifest(RawManifest(f"kind: PyTorchJob\n{line}"))
    assert refused.value.field == "manifest"
    assert "hunter2" not in str(refused.value)


def test_text_that_cannot_be_encoded_is_refused() -> None:
    with pytest.raises(InvalidSpec):
        build_manifest(RawManifest("\ud800"))


def test_aliases_that_unfold_without_end_are_refused() -> None:
    lines = ["a0: &a0 [1, 1]", *(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 40))]
    with pytest.raises(InvalidSpec, match="expands"):
        build_manifest(RawManifest("\n".join(lines)))


def test_a_key_that_is_there_twice_is_refused() -> None:
    text = "kind: PyTorchJob\nspec:\n  pytorchReplicaSpecs:\n    Master: {}\n    Master: {}\n"
    with pytest.raises(InvalidSpec, match="a duplicate key, in line 5, got 'Master'"):
        build_manifest(RawManifest(text))


def test_aliases_and_merged_keys_are_fine() -> None:
    text = """
        apiVersion: batch/v1
        kind: Job
        metadata:
          labels: &labels {team: vision}
          annotations: {<<: *labels, <<: {a: b}}
        spec:
          template: {spec: {containers: [{name: a, image: img}]}}
    """
    metadata = build_manifest(RawManifest(text))["metadata"]
    assert metadata["labels"] == {"team": "vision"}
    assert metadata["annotations"] == {"team": "vision", "a": "b"}
