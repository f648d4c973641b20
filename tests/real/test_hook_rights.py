"""The documented permissions are enough for every call of the hooks, and each one is needed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from airflow_kftrain.errors import Forbidden, NotFound
from airflow_kftrain.hooks import permissions
from airflow_kftrain.hooks.permissions import Permission
from airflow_kftrain.hooks.training_job import TrainingJobHook
from airflow_kftrain.kinds import KINDS, PYTORCH_JOB, JobKind
from tests.cluster.hooks import CONNECTION, Looped, set_connection, with_owner, without
from tests.cluster.objects import still_job
from tests.control_plane import ControlPlane
from tests.control_plane.launcher import TRAINING_OPERATOR

pytestmark = pytest.mark.parametrize("plane", [TRAINING_OPERATOR], indirect=True)

JOB = "job"
NOBODY = "00000000-0000-0000-0000-000000000000"


def be(plane: ControlPlane, namespace: str, patch: pytest.MonkeyPatch, rules: Any) -> None:
    file, _ = plane.create_user("airflow", namespace, rules)
    set_connection(patch, kube_config_path=str(file), namespace=namespace)


def test_the_documented_role_is_enough_for_all_verbs(
    plane: ControlPlane, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    be(plane, namespace, monkeypatch, permissions.role_rules([PYTORCH_JOB]))
    place = (PYTORCH_JOB, namespace, JOB)
    with Looped(CONNECTION) as hook:
        created = hook.submit(PYTORCH_JOB, with_owner(still_job(), namespace))
        again = hook.submit(PYTORCH_JOB, with_owner(still_job(), namespace))
        assert again["metadata"]["uid"] == created["metadata"]["uid"]
        assert hook.get(*place) is not None
        assert len(list(hook.list(*place[:2]))) == 1
        assert hook.patch(*place, {"metadata": {"annotations": {"a": "b"}}})
        assert hook.pods(*place) == []
        with pytest.raises(NotFound, match='pods "p" not found'):
            hook.log(namespace, "p", "main")
        assert isinstance(hook.events(namespace, [JOB]), list)
        version, items = hook.snapshot("pods", namespace)
        hook.run(items.aclose())
        assert list(hook.watch_pods(namespace, "", "", version, 1)) == []
        with contextlib.closing(hook.watch(PYTORCH_JOB, namespace, "", "0", 5)) as events:
            assert next(events)[0] == "ADDED"
        assert hook.delete(*place, uid=created["metadata"]["uid"])
    assert TrainingJobHook(CONNECTION).mpi_version() == "v1"


def _work(kind: JobKind, verb: str) -> Callable[[Any, str], object]:
    """The call of the trigger's hook that needs the permission for `verb`."""
    return {
        "create": lambda hook, ns: hook.submit(kind, with_owner(still_job(), ns)),
        "get": lambda hook, ns: hook.get(kind, ns, JOB),
        "list": lambda hook, ns: list(hook.list(kind, ns)),
        "watch": lambda hook, ns: list(hook.watch(kind, ns, "", "0", 1)),
        "patch": lambda hook, ns: hook.patch(kind, ns, JOB, {"metadata": {}}),
        "delete": lambda hook, ns: hook.delete(kind, ns, JOB, uid=NOBODY),
    }[verb]


OF_PODS: dict[tuple[str, str], Callable[[Any, str], object]] = {
    ("list", "pods"): lambda hook, ns: hook.pods(PYTORCH_JOB, ns, JOB),
    ("watch", "pods"): lambda hook, ns: list(hook.watch_pods(ns, "", "", "0", 1)),
    ("get", "pods/log"): lambda hook, ns: hook.log(ns, "p", "main"),
}

ROWS = [
    *(
        (each, _work(kind, each.verb))
        for kind in {kind.plural: kind for kind in KINDS}.values()
        for each in permissions.of_kind(kind)
    ),
    *((each, OF_PODS.get((each.verb, each.resource))) for each in permissions.of_all_kinds()),
]


@pytest.mark.parametrize(
    ("missing", "work"), ROWS, ids=[f"{each.verb} {each.resource}" for each, _ in ROWS]
)
def test_a_missing_right_is_named_by_verb_and_resource(
    plane: ControlPlane,
    namespace: str,
    monkeypatch: pytest.MonkeyPatch,
    missing: Permission,
    work: Callable[[Any, str], object] | None,
) -> None:
    be(plane, namespace, monkeypatch, without(missing))
    with Looped(CONNECTION) as hook:
        if work is None:  # events are only evidence
            assert missing.resource == "events"
            assert hook.events(namespace, [JOB]) == []
            return
        with pytest.raises(Forbidden) as caught:
            work(hook, namespace)
    group = f" of {missing.group}" if missing.group else ""
    assert (
        f"system:serviceaccount:{namespace}:airflow may not {missing.verb} {missing.resource}"
        f"{group} in namespace {namespace}. Give this user a Role with the verb {missing.verb} on "
        f"{missing.resource}; `airflow-kftrain doctor` lists all required permissions."
    ) in str(caught.value)
