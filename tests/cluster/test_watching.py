"""Watching"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from airflow_kftrain.job_state import Phase
from airflow_kftrain.monitoring.decisions import Verdict
from tests.cluster.jobs import pytorch_job, replica
from tests.cluster.watched import Told, order_for, start
from tests.cluster.world import World

pytestmark = pytest.mark.usefixtures("connection")


def test_a_job_is_watched_to_its_success(world: World) -> None:
    script = "echo hello; echo '{\"loss\": 1}' > $KFTRAIN_RESULT_FILE; sleep 1"
    file: Any = {"env": [{"name": "KFTRAIN_RESULT_FILE", "value": "/dev/termination-log"}]}
    roles = {"Master": replica("pytorch", script, **file), "Worker": replica("pytorch", "true")}
    job = start(world, pytorch_job(roles))
    told = Told()
    outcome = asyncio.run(told.watch(order_for(world, job)))
    assert outcome.verdict is Verdict.SUCCEEDED
    assert outcome.phase is Phase.SUCCEEDED
    assert outcome.words == "The PyTorchJob succeeded."
    assert json.loads(outcome.result) == {"loss": 1}
    assert outcome.tail == "hello"
    assert [(pod.role, pod.index, pod.pod, pod.leads) for pod in outcome.pods] == [
        ("master", 0, "job-master-0", True),
        ("worker", 0, "job-worker-0", False),
    ]
    assert told.pods[-1] == outcome.pods
    assert told.lines[-1].startswith(f"PyTorchJob {world.namespace}/job: Succeeded")
    assert len(told.lines) == len(set(told.lines))


def test_a_failure_names_the_replica_that_failed_first(world: World) -> None:
    roles = {
        "Master": replica("pytorch", "sleep 60"),
        "Worker": replica("pytorch", "echo no such file; exit 3"),
    }
    job = start(world, pytorch_job(roles, run_policy={"cleanPodPolicy": "Running"}))
    outcome = asyncio.run(Told().watch(order_for(world, job)))
    assert (outcome.verdict, outcome.phase) == (Verdict.FAILED, Phase.FAILED)
    assert "worker-0" in outcome.words
    assert outcome.exit_code == 3
    assert "no such file" in outcome.report
