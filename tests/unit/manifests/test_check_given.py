"""The check when a DAG file is parsed: known values obey the same rules, unknown ones are accepted
everywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from datetime import date, timedelta
from typing import Any

import pytest
from hypothesis import assume, settings
from hypothesis import given as generate
from hypothesis import strategies as st

from airflow_kftrain import (
    Elastic,
    InvalidSpec,
    Owner,
    Pod,
    PyTorchJob,
    RawManifest,
    Replica,
    Resources,
    RunPolicy,
    TrainJob,
    build_manifest,
)
from airflow_kftrain.manifests import check_given
from airflow_kftrain.specs.later import mask

from .. import nonsense
from .rich_specs import rich_specs

Path = tuple[int | str, ...]
NAMES = list(rich_specs())


OWNER = Owner("airflow", "dag", "task", "run", "ti")
# Values of the wrong kind, and values that no manifest can contain.
NONSENSE = nonsense.JSON | st.sampled_from(
    [
        object(),
        b"bytes",
        {"a set"},
        (1, 2),
        {1: 2},
        [None],
        [{"name": "x"}],
        date(2026, 1, 1),
        timedelta(days=1),
        Replica(),
        Pod(),
        Elastic(nodes=2),
    ]
)


class ValueOfAnotherTask:
    """Looks to this package like a reference to the result of another task."""

    def resolve(self, context: object) -> object:
        raise AssertionError("nothing may be resolved at parse")

    def iter_references(self) -> Iterator[object]:
        raise AssertionError("nobody may look behind it at parse")


def places(value: Any, path: Path = ()) -> Iterator[Path]:
    """The paths of everything in a value, including the value itself."""
    if value is None:
        return
    yield path
    if hasattr(value, "_fields"):
        items: list[tuple[Any, Any]] = [(name, getattr(value, name)) for name in value._fields]
    elif isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list | tuple):
        items = list(enumerate(value))
    else:
        items = []
    for key, item in items:
        yield from places(item, (*path, key))


def replaced(value: Any, path: Path, by: Any) -> Any:
    """A copy of a value with something else in one place."""
    if not path:
        return by
    key, rest = path[0], path[1:]
    if hasattr(value, "_fields"):
        return value._replace(**{str(key): replaced(getattr(value, str(key)), rest, by)})
    if isinstance(value, dict):
        return {**value, key: replaced(value[key], rest, by)}
    copied = list(value)
    copied[int(key)] = replaced(copied[int(key)], rest, by)
    return type(value)(copied)


def refusals(name: str, unknown: Any) -> list[str]:
    spec_type, given = rich_specs()[name]
    found = []
    for path in places(given):
        if not path:
            continue
        try:
            check_given(spec_type, replaced(given, path, unknown))
        except Exception as error:  # noqa: BLE001, any error at all is what is looked for
            found.append(f"{path}: {type(error).__name__}: {error}")
    return found


@pytest.mark.parametrize("name", NAMES)
def test_specs_that_are_all_known_are_accepted(name: str) -> None:
    spec_type, given = rich_specs()[name]
    check_given(spec_type, given)
    build_manifest(spec_type(**given))


@pytest.mark.parametrize("name", NAMES)
def test_a_template_may_stand_anywhere(name: str) -> None:
    assert refusals(name, "{{ params.x }}") == []


@pytest.mark.parametrize("name", NAMES)
def test_a_result_of_another_task_may_stand_anywhere(name: str) -> None:
    assert refusals(name, ValueOfAnotherTask()) == []


@settings(deadline=None, max_examples=75)
@generate(st.data())
def test_any_two_values_may_be_templates(data: st.DataObject) -> None:
    spec_type, given = data.draw(st.sampled_from(list(rich_specs().values())))
    for _ in range(2):
        paths = [path for path in places(given) if path]
        given = replaced(given, data.draw(st.sampled_from(paths)), "{{ params.x }}")
    check_given(spec_type, given)


def verdict(run: Callable[[], object]) -> str:
    """The error, or "" if nothing is wrong. Any exception except InvalidSpec is a bug."""
    try:
        run()
    except InvalidSpec as error:
        return str(error)
    return ""


@settings(deadline=None, max_examples=100)
@generate(st.data())
def test_nonsense_is_refused_by_name_and_at_parse_as_on_the_worker(data: st.DataObject) -> None:
    spec_type, given = data.draw(st.sampled_from(list(rich_specs().values())))
    path = data.draw(st.sampled_from([path for path in places(given) if path]))
    value = data.draw(NONSENSE)
    assume(repr(mask(value)) == repr(value))  # by chance it may look like a template
    given = replaced(given, path, value)
    at_parse = verdict(lambda: check_given(spec_type, given))
    assert verdict(lambda: build_manifest(spec_type(**given), owner=OWNER)) == at_parse


@pytest.mark.parametrize(
    ("spec_type", "given", "field"),
    [
        (PyTorchJob, {"workers": "{{ n }}", "image": "{{ i }}", "queue_name": "a b"}, "queue_name"),
        (PyTorchJob, {"image": "{{ i }}"}, "workers"),
        (PyTorchJob, {"workers": "{{ n }}", "worker": Replica()}, "workers"),
        (PyTorchJob, {"workers": "{{ n }}"}, "image"),
        (
            PyTorchJob,
            {"image": "i", "worker": "{{ w }}", "master": Replica(count=2)},
            "master.count",
        ),
        (
            PyTorchJob,
            {"image": "i", "elastic": Elastic(min_nodes="{{ n }}", max_nodes=0)},
            "elastic.max_nodes",
        ),
        (
            PyTorchJob,
            {"image": "i", "workers": 1, "args": ["{{ a }}", None]},
            "args[1]",
        ),
        (
            PyTorchJob,
            {"image": "i", "workers": 1, "env": {"A": "{{ a }}", "B": True}},
            "env['B']",
        ),
        (
            PyTorchJob,
            {
                "image": "i",
                "workers": 1,
                "container_resources": Resources(cpu="{{ c }}", memory=("2Gi", "1Gi")),
            },
            "container_resources.memory",
        ),
        (
            PyTorchJob,
            {
                "image": "i",
                "workers": 1,
                "pod": Pod(
                    volumes="{{ v }}",
                    volume_mounts=[{"name": "a", "mountPath": "/a"}, {"name": "a"}],
                ),
            },
            "pod.volume_mounts[1].mountPath",
        ),
        (TrainJob, {"runtime": "{{ r }}", "env": {"PET_NNODES": "{{ n }}"}}, "env[0].name"),
        (TrainJob, {"runtime": "torch", "num_nodes": 0, "env": "{{ e }}"}, "num_nodes"),
        (
            RawManifest,
            {
                "manifest": {
                    "apiVersion": "batch/v1",
                    "kind": "Job",
                    "metadata": "{{ m }}",
                    "spec": {"backoffLimit": -1, "template": "{{ t }}"},
                }
            },
            "spec.backoffLimit",
        ),
    ],
)
def test_what_is_known_beside_a_template_is_checked(
    spec_type: Any, given: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidSpec) as caught:
        check_given(spec_type, given)
    assert caught.value.field == field


@pytest.mark.parametrize(
    "manifest",
    [
        "{{ params.manifest }}",
        {"apiVersion": "{{ v }}", "kind": "PyTorchJob"},
        {"apiVersion": "kubeflow.org/v1", "kind": "{{ k }}", "spec": {}},
        {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "spec": "{{ s }}"},
    ],
)
def test_a_manifest_of_unknown_kind_or_content_waits_for_the_worker(manifest: Any) -> None:
    check_given(RawManifest, {"manifest": manifest})


def test_a_patch_of_ours_may_be_a_template_too() -> None:
    jobs = {"template": {"spec": {"replicatedJobs": "{{ jobs }}"}}}
    patch = {"manager": "airflow-kftrain/provider", "trainingRuntimeSpec": jobs}
    manifest = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "spec": {"runtimeRef": {"name": "torch"}, "runtimePatches": [patch]},
    }
    check_given(RawManifest, {"manifest": manifest})


@pytest.mark.parametrize("policy", ["Never", "ExitCode"])
def test_a_group_that_may_become_a_single_node_is_not_held_to_the_rules_of_a_group(
    policy: str,
) -> None:
    given = {
        "image": "i",
        "elastic": Elastic(nodes="{{ nodes }}"),
        "worker": Replica(restart_policy=policy),
        "run_policy": RunPolicy(backoff_limit=2),
    }
    check_given(PyTorchJob, given)


def test_what_is_given_is_not_changed() -> None:
    for spec_type, given in rich_specs().values():
        before = deepcopy(given)
        check_given(spec_type, given)
        assert given == before
