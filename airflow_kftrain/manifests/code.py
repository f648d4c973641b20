"""Adds `code` and functions to a manifest: the runner in front of each command, a volume with the
payload, and a folder for the pod's files.

Built and raw manifests are treated alike. At first a function is a command like any other, so
torchrun, mpirun and horovodrun start it like any other command.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from airflow_kftrain.errors import InvalidSpec
from airflow_kftrain.function_payload.carrier import IN, WORK, Payload, rank_words, runner_words
from airflow_kftrain.kinds import JobKind
from airflow_kftrain.manifests.loading import with_fields
from airflow_kftrain.manifests.places import (
    containers_of,
    get,
    listed,
    own_patches,
    put,
    role_groups,
    templates_by_path,
)
from airflow_kftrain.specs.code import Code
from airflow_kftrain.specs.job import JobSpec
from airflow_kftrain.specs.later import LATER
from airflow_kftrain.specs.replicas import Replica

CODE_ANNOTATION = "airflow-kftrain/code"
IN_VOLUME, WORK_VOLUME = "kftrain-in", "kftrain-work"
_KEPT = "None"
"""The clean-up policy that deletes no pods."""


def as_command(spec: JobSpec) -> Any:
    """The spec with its function in the field `command`. Raises InvalidSpec."""
    for name, value in vars(spec).items():
        if isinstance(value, Replica):
            _refuse_command(f"{name}.", value)
    _refuse_command("", spec)
    python = LATER if spec.code is LATER else (spec.code or Code()).python
    return with_fields(spec, {"command": rank_words(python)})


def _refuse_command(prefix: str, holder: Any) -> None:
    for name in ("command", "args"):
        if getattr(holder, name) is not None:
            raise InvalidSpec(
                f"{prefix}{name}",
                "cannot be combined with a function: the function is the command",
                advice="Omit it.",
            )


def refuse_working_dir(spec: JobSpec) -> None:
    """The runner starts everything in the folder of the files. Raises InvalidSpec."""
    holders = {"": spec, **{f"{name}.": each for name, each in vars(spec).items()}}
    for prefix, holder in holders.items():
        if getattr(getattr(holder, "container", None), "working_dir", None) is not None:
            raise InvalidSpec(
                f"{prefix}container.working_dir",
                "has no effect together with code or a function: programs start in the folder "
                "with the files of the code",
                advice="Omit it.",
            )


def carry(
    kind: JobKind, manifest: dict[str, Any], code: Any, payload: Any, *, by_runtime: bool = False
) -> None:
    """Make room for what is carried, which `fill_in` writes. `payload` is LATER at parse;
    `by_runtime`: the runtime of a TrainJob starts the function."""
    python = LATER if code is LATER else (code or Code()).python
    note = payload.digest if isinstance(payload, Payload) else LATER
    if kind.trainer_key:
        _carry_in_trainer(kind, manifest, python, note)
        if by_runtime:
            # The runner starts it as the runtime wants it: what that is stands in no TrainJob.
            manifest["spec"][kind.trainer_key]["command"] = runner_words(python)
        return
    runs = {role.name: role.runs_command for role in kind.roles}
    for role, path, template in _templates(kind, manifest):
        main, where = _main_container(kind, template)
        if main is None:
            continue
        if runs[role] or main.get("command"):
            _wrap(f"{path}.{where}", main, python)
        metadata = template.setdefault("metadata", {})
        _add(template["spec"], main)
        if metadata is not LATER:
            _annotate(metadata, note)


def keep_pods(kind: JobKind, manifest: dict[str, Any]) -> None:
    """Lets the pods of an elastic job stay at its end: rank 0 may be in any of them."""
    spec = manifest["spec"]
    if not kind.elastic_key or spec.get(kind.elastic_key) is None:
        return
    path = kind.run_policy["clean_pods"]
    said = get(spec, path)
    if said not in (None, LATER, _KEPT):
        raise InvalidSpec(
            f"spec.{path}",
            "may delete the pod of rank 0 before its value is read: in an elastic job, that can be "
            "any pod",
            value=said,
            advice="Omit it: the job is deleted when its task ends.",
        )
    put(spec, path, _KEPT)


def fill_in(kind: JobKind, manifest: dict[str, Any], payload: Payload) -> None:
    """Writes the payload to the annotations that `carry` has added."""
    if kind.trainer_key:
        for patch in own_patches(kind, manifest):
            patch["metadata"]["annotations"][CODE_ANNOTATION] = payload.text
        return
    for _, _, template in _templates(kind, manifest):
        annotations = template["metadata"].get("annotations") or {}
        if CODE_ANNOTATION in annotations:
            annotations[CODE_ANNOTATION] = payload.text


def _templates(
    kind: JobKind, manifest: dict[str, Any]
) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(role, path, template)"""
    paths = {
        f"spec.{kind.replicas_key}.{role}.template": role for role in role_groups(kind, manifest)
    }
    for path, template in templates_by_path(kind, manifest):
        yield paths.get(path, kind.roles[0].name), path, template


def _main_container(
    kind: JobKind, template: Mapping[str, Any]
) -> tuple[dict[str, Any] | None, str]:
    beside = [
        (container, where)
        for where, container in containers_of(template)
        if where.startswith("spec.containers")
    ]
    named = [each for each in beside if each[0].get("name") == kind.container]
    return next(iter([*named, *beside]), (None, ""))


def _wrap(field: str, holder: dict[str, Any], python: Any) -> None:
    command = holder.get("command")
    if command is LATER:
        return
    if not command:
        raise InvalidSpec(
            f"{field}.command",
            "is required together with code: the image's own command is not known",
            advice="For example: command=['python', 'train.py'].",
        )
    holder["command"] = [*runner_words(python), *command]


def _carry_in_trainer(kind: JobKind, manifest: dict[str, Any], python: Any, note: Any) -> None:
    trainer = manifest["spec"].setdefault(kind.trainer_key, {})
    if trainer is LATER:
        return
    _wrap(f"spec.{kind.trainer_key}", trainer, python)
    for patch in own_patches(kind, manifest):
        metadata, spec = patch.setdefault("metadata", {}), patch.setdefault("spec", {})
        containers = spec.setdefault("containers", [])
        main = next((each for each in containers if each.get("name") == kind.container), None)
        if main is None:
            main = {"name": kind.container}
            containers.append(main)
        _add(spec, main)
        _annotate(metadata, note)


def _annotate(metadata: dict[str, Any], note: Any) -> None:
    given = metadata.get("annotations")
    if given is not LATER:
        metadata["annotations"] = {**(given or {}), CODE_ANNOTATION: note}


def _add(spec: dict[str, Any], main: dict[str, Any]) -> None:
    source = {"fieldPath": f"metadata.annotations['{CODE_ANNOTATION}']"}
    volumes = [
        {"name": IN_VOLUME, "downwardAPI": {"items": [{"path": "payload", "fieldRef": source}]}},
        {"name": WORK_VOLUME, "emptyDir": {}},
    ]
    mounts = [
        {"name": IN_VOLUME, "mountPath": IN, "readOnly": True},
        {"name": WORK_VOLUME, "mountPath": WORK},
    ]
    if spec.get("volumes") is not LATER:
        spec["volumes"] = [*listed(spec, "volumes"), *volumes]
    if main.get("volumeMounts") is not LATER:
        main["volumeMounts"] = [*listed(main, "volumeMounts"), *mounts]
