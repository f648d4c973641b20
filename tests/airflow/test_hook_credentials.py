"""hooks: every kind of Airflow connection of type Kubernetes."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import kubernetes.config.incluster_config
import kubernetes.config.kube_config
import kubernetes_asyncio.config
import kubernetes_asyncio.config.incluster_config
import kubernetes_asyncio.config.kube_config
import pytest
import yaml

from airflow_kftrain.errors import BadConnection, ClusterError, Unauthorized, Unreachable
from airflow_kftrain.hooks import credentials
from airflow_kftrain.hooks.api_calls import get_version
from airflow_kftrain.hooks.training_job_async import AsyncTrainingJobHook
from tests.airflow.doorkeeper import Doorkeeper
from tests.cluster.hooks import CONNECTION, Looped, set_connection

# The oldest supported cncf-kubernetes imports from modules that Airflow 3.1 has moved.
pytestmark = pytest.mark.filterwarnings("ignore:The `airflow")

DEFAULT = "kubernetes_default"
unknown_to_airflow = pytest.mark.skipif(
    version("apache-airflow-core") < "3.2",
    reason="outside of a task Airflow 3.1 looks for connections in the environment only",
)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Doorkeeper]:
    with Doorkeeper("cluster", tmp_path / "cluster").at_work() as keeper:
        yield keeper


@pytest.fixture(autouse=True)
def no_cluster_of_the_developer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Neither a default kubeconfig nor a pod. Returns the path of the former."""
    default = tmp_path / "default-kubeconfig"
    for module in (
        kubernetes.config.kube_config,
        kubernetes_asyncio.config,
        kubernetes_asyncio.config.kube_config,
    ):
        monkeypatch.setattr(module, "KUBE_CONFIG_DEFAULT_LOCATION", str(default), raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    return default


class Hooks:
    """Creates hooks, each in an event loop of its own."""

    def __init__(self) -> None:
        self._made: list[Looped] = []

    def __call__(self, connection: str | None = CONNECTION) -> Any:
        self._made.append(Looped(connection))
        return self._made[-1]

    def close(self) -> None:
        for made in self._made:
            made.__exit__()


@pytest.fixture
def hook_of() -> Iterator[Hooks]:
    hooks = Hooks()
    yield hooks
    hooks.close()


def answers(hook: Any) -> str:
    """Returns the name of the server that answers."""
    return str(hook.ask(get_version())["gitVersion"])


def written(folder: Path, config: Any, name: str = "kubeconfig") -> str:
    file = folder / name
    file.write_text(yaml.safe_dump(config), encoding="utf-8")
    return str(file)


def test_a_path_to_a_kubeconfig(
    hook_of: Hooks, cluster: Doorkeeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_connection(monkeypatch, kube_config_path=written(tmp_path, cluster.kubeconfig()))
    assert answers(hook_of()) == "cluster"


def test_old_connections_have_long_names(
    hook_of: Hooks, cluster: Doorkeeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(tmp_path, cluster.kubeconfig())
    names = {"extra__kubernetes__kube_config_path": file, "extra__kubernetes__namespace": "ml"}
    set_connection(monkeypatch, **names)
    hook = hook_of()
    assert (answers(hook), hook.namespace()) == ("cluster", "ml")


@pytest.mark.parametrize("form", ["json", "object"])
def test_a_kubeconfig_in_the_connection_itself(
    hook_of: Hooks, cluster: Doorkeeper, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    config = cluster.kubeconfig()
    set_connection(monkeypatch, kube_config=json.dumps(config) if form == "json" else config)
    assert answers(hook_of()) == "cluster"


def test_a_context_other_than_the_current_one(
    hook_of: Hooks, cluster: Doorkeeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Doorkeeper("other", tmp_path / "other").at_work() as other:
        config = cluster.kubeconfig()
        for key in ("clusters", "contexts", "users"):
            config[key] += other.kubeconfig()[key]
        file = written(tmp_path, config)
        set_connection(monkeypatch, kube_config_path=file, cluster_context="other")
        set_connection(monkeypatch, "current", kube_config_path=file)
        assert answers(hook_of()) == "other"
        assert answers(hook_of("current")) == "cluster"


def test_two_connections_do_not_disturb_each_other(
    hook_of: Hooks, cluster: Doorkeeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Doorkeeper("other", tmp_path / "other").at_work() as other:
        set_connection(monkeypatch, "one", kube_config=json.dumps(cluster.kubeconfig()))
        set_connection(monkeypatch, "two", kube_config=json.dumps(other.kubeconfig()))
        one, two = hook_of("one"), hook_of("two")
        assert [answers(hook) for hook in (one, two, one, two)] == ["cluster", "other"] * 2


@pytest.fixture
def pod(cluster: Doorkeeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """As in a pod. Returns the folder of its ServiceAccount."""
    folder = tmp_path / "serviceaccount"
    folder.mkdir()
    (folder / "token").write_text(cluster.token)
    (folder / "namespace").write_text("of-the-pod\n")
    (folder / "ca.crt").write_bytes(cluster.ca.read_bytes())
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(cluster.port))
    for module in (
        kubernetes.config.incluster_config,
        kubernetes_asyncio.config.incluster_config,
    ):
        monkeypatch.setattr(module, "SERVICE_TOKEN_FILENAME", str(folder / "token"))
        monkeypatch.setattr(module, "SERVICE_CERT_FILENAME", str(folder / "ca.crt"))
    monkeypatch.setattr(credentials, "_POD_NAMESPACE", folder / "namespace")
    return folder


def test_the_account_of_the_pod(hook_of: Hooks, pod: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_connection(monkeypatch, in_cluster=True)
    hook = hook_of()
    assert (answers(hook), hook.namespace()) == ("cluster", "of-the-pod")


def test_the_account_of_the_pod_when_its_token_was_replaced(
    hook_of: Hooks, pod: Path, cluster: Doorkeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kubelet replaces it; a client library may read the file only now and then."""
    set_connection(monkeypatch, in_cluster=True)
    hook = hook_of()
    assert answers(hook) == "cluster"
    cluster.token = "second-hush"
    (pod / "token").write_text(cluster.token)
    assert answers(hook) == "cluster"


@pytest.mark.parametrize("connection", [pytest.param(DEFAULT, marks=unknown_to_airflow), None])
def test_without_a_connection_the_pod_comes_first(
    hook_of: Hooks,
    pod: Path,
    no_cluster_of_the_developer: Path,
    tmp_path: Path,
    connection: str | None,
) -> None:
    with Doorkeeper("other", tmp_path / "other").at_work() as other:
        written(tmp_path, other.kubeconfig(), no_cluster_of_the_developer.name)
        assert answers(hook_of(connection)) == "cluster"


@pytest.mark.parametrize("connection", [pytest.param(DEFAULT, marks=unknown_to_airflow), None])
def test_without_a_connection_the_default_kubeconfig_is_taken(
    hook_of: Hooks,
    cluster: Doorkeeper,
    no_cluster_of_the_developer: Path,
    tmp_path: Path,
    connection: str | None,
) -> None:
    written(tmp_path, cluster.kubeconfig(), no_cluster_of_the_developer.name)
    hook = hook_of(connection)
    assert (answers(hook), hook.namespace()) == ("cluster", "default")


def test_no_connection_is_not_the_default_one(
    hook_of: Hooks, cluster: Doorkeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_connection(monkeypatch, DEFAULT, kube_config=json.dumps(cluster.kubeconfig()))
    assert answers(hook_of(DEFAULT)) == "cluster"
    with pytest.raises(BadConnection, match="cannot use no Airflow connection"):
        answers(hook_of(None))


PLUGIN = """\
import json, pathlib, sys
folder = pathlib.Path(sys.argv[1])
with open(folder / "runs", "a") as runs:
    runs.write("x")
token = (folder / "token").read_text()
if not token:
    sys.exit("the identity provider is away")
status = {"token": token}
print(json.dumps({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
                  "status": status}))
"""


@pytest.fixture
def plugin(cluster: Doorkeeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program that fetches the token, like those of cloud providers. Returns its folder."""
    folder = tmp_path / "plugin"
    folder.mkdir()
    (folder / "plugin.py").write_text(PLUGIN)
    (folder / "token").write_text(cluster.token)
    run = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": sys.executable,
        "args": [str(folder / "plugin.py"), str(folder)],
        "interactiveMode": "Never",
    }
    file = written(tmp_path, cluster.kubeconfig(exec=run))
    set_connection(monkeypatch, kube_config_path=file)
    return folder


def test_a_program_that_fetches_the_token_runs_once(hook_of: Hooks, plugin: Path) -> None:
    hook = hook_of()
    assert [answers(hook) for _ in range(5)] == ["cluster"] * 5
    assert (plugin / "runs").read_text() == "x"


def test_a_token_that_expired_is_fetched_anew(
    hook_of: Hooks, plugin: Path, cluster: Doorkeeper
) -> None:
    hook = hook_of()
    answers(hook)
    cluster.token = "second-hush"
    (plugin / "token").write_text(cluster.token)
    assert [answers(hook) for _ in range(3)] == ["cluster"] * 3
    assert (plugin / "runs").read_text() == "xx"
    assert cluster.seen == ["first-hush", "first-hush", *["second-hush"] * 3]


def test_a_program_that_fails_may_succeed_later(
    hook_of: Hooks, plugin: Path, cluster: Doorkeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_kftrain.hooks.operations.PATIENCE", 0.1)
    hook = hook_of()
    (plugin / "token").write_text("")
    # One of the two client libraries continues without a token.
    with pytest.raises((BadConnection, Unauthorized)) as caught:
        answers(hook)
    assert caught.value.retryable
    (plugin / "token").write_text(cluster.token)
    assert answers(hook) == "cluster"


def test_many_triggers_renew_a_token_once(plugin: Path, cluster: Doorkeeper) -> None:
    async def work() -> None:
        hooks = [AsyncTrainingJobHook(CONNECTION) for _ in range(20)]
        await asyncio.gather(*[hook.ask(get_version()) for hook in hooks])
        cluster.token = "second-hush"
        (plugin / "token").write_text(cluster.token)
        await asyncio.gather(*[hook.ask(get_version()) for hook in hooks])

    asyncio.run(work())
    assert (plugin / "runs").read_text() == "xx"


@pytest.mark.filterwarnings("ignore:unclosed transport")  # aiohttp 3.11
def test_a_certificate_that_is_not_trusted_is_told(
    hook_of: Hooks, cluster: Doorkeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = cluster.kubeconfig()
    del config["clusters"][0]["cluster"]["certificate-authority"]
    set_connection(monkeypatch, kube_config=json.dumps(config))
    with pytest.raises(Unreachable) as caught:
        answers(hook_of())
    assert str(caught.value) == (
        "cannot ask for the version of the cluster: the certificate of https://127.0.0.1:"
        f"{cluster.port} (Airflow connection cluster) is not trusted (unable to get local issuer "
        "certificate). Give the connection the cluster's certificate authority "
        "(`certificate-authority-data` in its kubeconfig)."
    )
    assert cluster.seen == []


@pytest.mark.filterwarnings("ignore:Unverified HTTPS request")
def test_a_certificate_may_be_taken_untrusted(
    hook_of: Hooks, cluster: Doorkeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = cluster.kubeconfig()
    del config["clusters"][0]["cluster"]["certificate-authority"]
    set_connection(monkeypatch, kube_config=json.dumps(config), disable_verify_ssl=True)
    assert answers(hook_of()) == "cluster"


HUSH = "first-hush"


def refused(hook: Any) -> str:
    with pytest.raises(ClusterError) as caught:
        answers(hook)
    assert type(caught.value) is BadConnection
    assert not caught.value.retryable
    text = str(caught.value)
    assert HUSH not in text
    assert "\n" not in text
    return text


@unknown_to_airflow
def test_a_connection_that_is_not_there(hook_of: Hooks) -> None:
    assert refused(hook_of("none")) == (
        "cannot use Airflow connection none: there is no such connection. Create it, with the type "
        "Kubernetes."
    )
    with pytest.raises(BadConnection, match="there is no such connection"):
        hook_of("none").namespace()


def test_a_kubeconfig_that_is_not_there(hook_of: Hooks, monkeypatch: pytest.MonkeyPatch) -> None:
    set_connection(monkeypatch, kube_config_path="/nowhere/kubeconfig")
    assert refused(hook_of()).startswith("cannot use Airflow connection cluster: ConfigException")


def test_a_connection_that_says_two_things(hook_of: Hooks, monkeypatch: pytest.MonkeyPatch) -> None:
    set_connection(monkeypatch, kube_config_path="/nowhere/kubeconfig", in_cluster=True)
    assert "mutually exclusive" in refused(hook_of())


def test_a_context_that_is_not_there(
    hook_of: Hooks, cluster: Doorkeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = json.dumps(cluster.kubeconfig())
    set_connection(monkeypatch, kube_config=config, cluster_context="other")
    assert "other" in refused(hook_of())


@pytest.mark.parametrize(
    "broken",
    [
        f"users: [{{token: {HUSH}",
        f"token: {HUSH}\n - x: {HUSH}",
        HUSH,
        f"[{HUSH}]",
        "5",
    ],
)
def test_a_kubeconfig_that_cannot_be_read_is_not_quoted(
    hook_of: Hooks, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    set_connection(monkeypatch, kube_config=broken)
    assert refused(hook_of()) == (
        "cannot use Airflow connection cluster: its kubeconfig cannot be read. It must be YAML or "
        "JSON, as `kubectl config view --raw` prints it."
    )


def test_a_pod_that_is_none(hook_of: Hooks, monkeypatch: pytest.MonkeyPatch) -> None:
    set_connection(monkeypatch, in_cluster=True)
    assert "Service host/port is not set" in refused(hook_of())


@unknown_to_airflow
def test_nothing_at_all(hook_of: Hooks) -> None:
    assert "Invalid kube-config file" in refused(hook_of(DEFAULT))
