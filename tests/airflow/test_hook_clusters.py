"""hooks: connections that lead to another cluster than before."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from airflow_kftrain.errors import OtherCluster
from airflow_kftrain.hooks.api_calls import get_version
from airflow_kftrain.hooks.training_job import TrainingJobHook
from airflow_kftrain.hooks.training_job_async import AsyncTrainingJobHook
from tests.airflow.doorkeeper import Doorkeeper
from tests.cluster.hooks import CONNECTION, set_connection

# The oldest supported cncf-kubernetes imports from modules that Airflow 3.1 has moved.
pytestmark = pytest.mark.filterwarnings("ignore:The `airflow")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Doorkeeper]:
    with Doorkeeper("cluster", tmp_path / "cluster").at_work() as keeper:
        yield keeper


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Doorkeeper]:
    with Doorkeeper("other", tmp_path / "other").at_work() as keeper:
        yield keeper


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_kftrain.hooks.operations.PATIENCE", 0.0)
    monkeypatch.setattr("airflow_kftrain.hooks.training_job_async._READ_AGAIN_SECONDS", 0.0)


def lead_to(keeper: Doorkeeper, monkeypatch: pytest.MonkeyPatch) -> str:
    """Returns the fingerprint, as a worker computes it."""
    set_connection(monkeypatch, kube_config=json.dumps(keeper.kubeconfig()))
    return TrainingJobHook(CONNECTION).cluster()


async def answers(hook: AsyncTrainingJobHook) -> str:
    """Returns the name of the server that answers."""
    return str((await hook.ask(get_version()))["gitVersion"])


@pytest.mark.parametrize("source", ["path", "text", "data", "pod"])
def test_workers_and_triggers_have_the_same_fingerprint(
    cluster: Doorkeeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    config: dict[str, Any] = cluster.kubeconfig()
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump(config))
    said: dict[str, Any] = {"kube_config_path": str(file)}
    if source in ("text", "data"):
        said = {"kube_config": json.dumps(config)}
    if source == "data":
        place = config["clusters"][0]["cluster"]
        content = Path(place.pop("certificate-authority")).read_bytes()
        place["certificate-authority-data"] = base64.b64encode(content).decode()
        said = {"kube_config": json.dumps(config)}
    if source == "pod":
        be_in_a_pod(cluster, tmp_path, monkeypatch)
        said = {"in_cluster": True}
    set_connection(monkeypatch, kube_config=json.dumps(config))
    usual = TrainingJobHook(CONNECTION).cluster()
    set_connection(monkeypatch, **said)
    assert TrainingJobHook(CONNECTION).cluster() == usual
    assert asyncio.run(answers(AsyncTrainingJobHook(CONNECTION, usual))) == "cluster"


def be_in_a_pod(cluster: Doorkeeper, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "token").write_text(cluster.token)
    (folder / "ca.crt").write_bytes(cluster.ca.read_bytes())
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(cluster.port))
    for library in ("kubernetes", "kubernetes_asyncio"):
        module = f"{library}.config.incluster_config"
        monkeypatch.setattr(f"{module}.SERVICE_TOKEN_FILENAME", str(folder / "token"))
        monkeypatch.setattr(f"{module}.SERVICE_CERT_FILENAME", str(folder / "ca.crt"))


def test_a_hook_keeps_its_cluster_when_the_connection_is_edited(
    cluster: Doorkeeper, other: Doorkeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> list[str]:
        one = AsyncTrainingJobHook(CONNECTION, lead_to(cluster, monkeypatch))
        before = await answers(one)
        two = AsyncTrainingJobHook(CONNECTION, lead_to(other, monkeypatch))
        return [before, await answers(two), await answers(one)]

    assert asyncio.run(work()) == ["cluster", "other", "cluster"]


def test_a_hook_does_not_talk_to_another_cluster(
    cluster: Doorkeeper, other: Doorkeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        hook = AsyncTrainingJobHook(CONNECTION, lead_to(cluster, monkeypatch))
        lead_to(other, monkeypatch)
        for _ in range(2):
            with pytest.raises(OtherCluster):
                await hook.ask(get_version())
        lead_to(cluster, monkeypatch)
        assert await answers(hook) == "cluster"

    asyncio.run(work())
    assert other.seen == []


def test_credentials_that_are_refused_for_a_while_are_kept_if_there_are_no_others(
    cluster: Doorkeeper, other: Doorkeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection leads elsewhere by now, so there is only the old client."""

    async def work() -> None:
        hook = AsyncTrainingJobHook(CONNECTION, lead_to(cluster, monkeypatch))
        assert await answers(hook) == "cluster"
        lead_to(other, monkeypatch)
        cluster.token = "second-hush"
        with pytest.raises(OtherCluster):
            await hook.ask(get_version())
        cluster.token = "first-hush"
        assert await answers(hook) == "cluster"

    asyncio.run(work())
    assert other.seen == []


def test_credentials_are_renewed_for_all_who_use_them(
    cluster: Doorkeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hook without a cluster shares the client of the hook for the current cluster."""

    async def work() -> None:
        hooks = [
            AsyncTrainingJobHook(CONNECTION),
            AsyncTrainingJobHook(CONNECTION, lead_to(cluster, monkeypatch)),
        ]
        for hook in hooks:
            await answers(hook)
        cluster.token = "second-hush"
        lead_to(cluster, monkeypatch)
        for hook in hooks:
            assert await answers(hook) == "cluster"

    asyncio.run(work())
    assert cluster.seen == ["first-hush"] * 3 + ["second-hush"] * 2


def test_a_cluster_that_has_moved_is_found_by_its_old_hooks(
    cluster: Doorkeeper, other: Doorkeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hook does not decide whether the cluster has moved."""

    async def work() -> list[str]:
        old = lead_to(cluster, monkeypatch)
        hook = AsyncTrainingJobHook(CONNECTION, old)
        assert await hook.elsewhere() is None
        lead_to(other, monkeypatch)
        moved = await hook.elsewhere()
        assert moved is not None
        before = await answers(hook)
        await hook.move(moved)
        other.token = "second-hush"
        lead_to(other, monkeypatch)  # the credentials of the new address are renewed there
        return [before, await answers(hook), await answers(AsyncTrainingJobHook(CONNECTION, old))]

    assert asyncio.run(work()) == ["cluster", "other", "other"]
