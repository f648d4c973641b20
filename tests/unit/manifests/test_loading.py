"""What authors keep in files."""

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
        (lambda path: path.write_bytes(b"\xff\xfe"), "is not the path of a text in UTF-8"),
        (lambda path: path.write_text("[1, 2]"), "must hold a mapping, and holds a list"),
        (lambda path: path.write_text(""), "must hold one mapping, and holds 0 documents"),
        (lambda path: path.write_text("a: 1\n---\nb: 2\n"), "and holds 2 documents"),
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


# At parse no file is read: it is on the worker, and may be a template itself.


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
