"""airflow-kftrain run"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from airflow_kftrain.__main__ import main
from tests.cluster.hooks import CONNECTION, set_connection
from tests.cluster.jobs import pytorch_job, replica
from tests.cluster.world import World
from tests.control_plane.api import Manifest

Run = Callable[..., tuple[int, list[str], str]]


@pytest.fixture
def run(
    world: World,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Run:
    """Runs the command for a manifest. Returns its exit code, the lines that it has printed, and
    its errors."""
    kubeconfig = str(world.target.kubeconfig)
    set_connection(monkeypatch, kube_config_path=kubeconfig, namespace=world.namespace)
    file = tmp_path / "job.yaml"

    def run(manifest: Manifest, *words: str) -> tuple[int, list[str], str]:
        file.write_text(yaml.safe_dump(manifest))
        code = main(["run", str(file), *(words or ("--conn-id", CONNECTION))])
        said = capsys.readouterr()
        return code, said.out.splitlines(), said.err

    return run


def _job(script: str, **metadata: str) -> Manifest:
    job = pytorch_job({"Master": replica("pytorch", script)})
    return {**job, "metadata": metadata or {"name": "train"}}


def test_a_manifest_runs_where_a_connection_leads(run: Run, world: World) -> None:
    code, lines, errors = run(_job("echo trained"))
    assert code == 0, errors
    assert lines[0] == "pytorchjob/train created"
    assert "[train-master-0] trained" in lines
    assert lines[-1] == "Succeeded"
    assert world.find("PyTorchJob", "train", "kubeflow.org/v1")


def test_a_manifest_runs_where_a_kubeconfig_leads(
    run: Run, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_KUBECONFIG", "")  # the command sets it; restored at the end
    file = str(world.target.kubeconfig)
    words = ("--kubeconfig", file, "--namespace", world.namespace)
    code, lines, errors = run(_job("true", generateName="train-"), *words)
    assert code == 0, errors
    assert lines[0].startswith("pytorchjob/train-")
    assert lines[-1] == "Succeeded"


def test_a_job_that_fails_is_told_with_its_cause(run: Run) -> None:
    code, lines, _ = run(_job("echo no such dataset; exit 3"))
    assert code == 1
    assert "[train-master-0] no such dataset" in lines
    assert "Failed" in lines
    assert any("exit code 3" in line for line in lines[lines.index("Failed") :])


def test_a_manifest_that_cannot_run_is_refused_in_one_line(run: Run, world: World) -> None:
    unknown = _job("true")
    unknown["spec"]["pytorchReplicaSpecs"]["Master"]["replcas"] = 1
    elsewhere = _job("true", name="train", namespace="elsewhere")
    for manifest, words in (
        (unknown, 'unknown field "spec.pytorchReplicaSpecs.Master.replcas"'),
        (_job("true", labels="none"), "metadata.name: is required"),
        ({"apiVersion": "v1", "kind": "Pod"}, "not a kind that this provider can run"),
    ):
        code, lines, errors = run(manifest)
        assert (code, lines) == (2, [])
        (line,) = errors.splitlines()
        assert line.startswith("error: ")
        assert words in line
    place = ("--conn-id", CONNECTION, "--namespace", world.namespace)
    code, _, errors = run(elsewhere, *place)
    assert code == 2
    assert f"metadata.namespace: is not {world.namespace}, got 'elsewhere'" in errors
