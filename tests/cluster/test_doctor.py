"""airflow-kftrain doctor"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_kftrain.__main__ import main
from airflow_kftrain.hooks import permissions
from airflow_kftrain.kinds import PYTORCH_JOB
from tests.cluster.hooks import CONNECTION, be_user, set_connection, without
from tests.cluster.marks import needs_users
from tests.cluster.world import World

# Webhooks belong to the whole cluster: if one scenario breaks them, the others are affected.
pytestmark = pytest.mark.usefixtures("alone")

Run = Callable[..., tuple[int, list[str]]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the command. Returns its exit code, and the lines that it has printed."""

    def doctor(*words: str) -> tuple[int, list[str]]:
        code = main(["doctor", "--conn-id", CONNECTION, *words])
        return code, capsys.readouterr().out.splitlines()

    return doctor


@pytest.fixture(autouse=True)
def connection(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    set_connection(
        monkeypatch, kube_config_path=str(world.target.kubeconfig), namespace=world.namespace
    )


def test_a_good_cluster_has_nothing_to_mend(run: Run, world: World) -> None:
    code, lines = run()
    assert code == 0, lines
    assert [line for line in lines if line.startswith("FAIL")] == []
    file = world.target.kubeconfig
    assert lines[0] == f"ok    connection cluster: kubeconfig {file} (kube_config_path)"
    assert lines[1].startswith("ok    http")
    assert "(Airflow connection cluster) is Kubernetes v1." in lines[1]
    assert lines[2] == f"ok    namespace {world.namespace}"
    assert "ok    PyTorchJob (kubeflow.org/v1) is served" in lines
    assert (
        "ok    allowed: create, get, list, watch, patch, delete pytorchjobs of kubeflow.org"
        in lines
    )
    assert "ok    allowed: get pods/log" in lines
    assert lines[-1] == "note  Kueue is not installed: do not use queue_name"


def test_a_namespace_that_is_not_there_has_to_be_made(run: Run, world: World) -> None:
    code, lines = run("--namespace", "nowhere")
    assert code == 1
    assert lines[2] == (
        "FAIL  namespace nowhere does not exist. Create it, or set another one in the connection "
        "or with --namespace."
    )


def test_a_namespace_that_is_no_name_is_told(run: Run) -> None:
    code, lines = run("--namespace", "A/B")
    assert code == 1
    assert lines[-1].startswith("FAIL  namespace: is not a valid name, got 'A/B'.")


def test_a_connection_that_cannot_be_used_ends_the_examination(
    run: Run, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_connection(monkeypatch, kube_config_path="/nowhere/kubeconfig")
    code, lines = run()
    assert code == 1
    assert len(lines) == 1
    assert lines[0].startswith("FAIL  cannot use Airflow connection cluster: ConfigException")


@needs_users
def test_the_documented_rights_are_enough(
    run: Run, world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    be_user(world, monkeypatch, tmp_path, permissions.role_rules())
    code, lines = run()
    assert code == 0, lines
    assert f"note  namespace {world.namespace}: not allowed to check whether it exists" in lines
    assert (
        "note  validatingwebhookconfigurations: not allowed to read them, and not required" in lines
    )


@needs_users
@pytest.mark.parametrize(
    "missing",
    [*permissions.of_kind(PYTORCH_JOB), *permissions.of_all_kinds()],
    ids=lambda each: f"{each.verb} {each.resource}",
)
def test_each_missing_right_is_named(
    run: Run,
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    missing: permissions.Permission,
) -> None:
    be_user(world, monkeypatch, tmp_path, without(missing))
    code, lines = run()
    group = f" of {missing.group}" if missing.group else ""
    mark = "FAIL" if missing.needed else "note"
    (line,) = (line for line in lines if "not allowed: " in line and "Add this verb" in line)
    assert line == (
        f"{mark}  not allowed: {missing.verb} {missing.resource}{group} in namespace "
        f"{world.namespace} ({missing.why}). Add this verb to the Role."
    )
    assert code == (1 if missing.needed else 0)


@pytest.mark.real_only(
    "the embedded cluster has no webhook configurations: its checks are built in"
)
@pytest.mark.parametrize(
    ("bundle", "text"),
    [
        ("", "has no certificate authority, so every submit is rejected. Restart its operator"),
        ("Y2E=", "uses the service gone/operator, which does not exist. Reinstall its operator"),
    ],
    ids=["bundle", "service"],
)
def test_a_broken_webhook_is_named(run: Run, world: World, bundle: str, text: str) -> None:
    client = {"service": {"namespace": "gone", "name": "operator", "path": "/"}}
    webhook = {
        "name": "validator.example.com",
        "clientConfig": client | ({"caBundle": bundle} if bundle else {}),
        "rules": [
            {
                "apiGroups": ["kubeflow.org"],
                "apiVersions": ["v1"],
                "operations": ["CREATE"],
                "resources": ["pytorchjobs"],
            }
        ],
        # Only this test should be affected.
        "failurePolicy": "Ignore",
        "objectSelector": {"matchLabels": {"never": "there"}},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    configuration = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": world.namespace},
        "webhooks": [webhook],
    }
    world.api.create(configuration).required("a webhook")
    try:
        code, lines = run()
    finally:
        world.api.delete(configuration)
    assert code == 1
    (line,) = (line for line in lines if line.startswith("FAIL"))
    assert f"webhook validator.example.com {text}" in line
