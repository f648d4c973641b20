"""Tasks that tell of training jobs in many states, for the tests of the tab "Training".

They submit no job. They store the XComs `job`, `log_links` and `kftrain` as a task with a job
does, so each state is there at once, and stays. Which one a task tells is the parameter `tells` of
its run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.providers.standard.triggers.temporal import TimeDeltaTrigger
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException

from airflow_kftrain import PyTorchJobOperator

Object = dict[str, Any]

_UID = "6f3f8d0e-4c6b-4b9e-9a54-0c8f1d2e7a90"
_NAME = "churn-model-3f2a9c1b7e"


class TellingOperator(PyTorchJobOperator):
    """A subclass, as authors write them."""

    template_fields: Sequence[str] = ("tells", *PyTorchJobOperator.template_fields)

    def __init__(self, *, tells: str = "{{ params.tells }}", **kwargs: Any) -> None:
        super().__init__(image="churn:1.4", workers=3, **kwargs)
        self.tells = tells

    def execute(self, context: Any) -> None:
        instance = context["ti"]
        if self.tells == "another-try" and instance.try_number == 1:
            raise RuntimeError("the first try fails")
        xcoms = _TOLD.get(self.tells, _running)()
        for key, value in xcoms.items():
            instance.xcom_push(key=key, value=value)
        verdict = xcoms.get("kftrain", {}).get("verdict")
        if verdict == "failed":
            raise AirflowFailException(xcoms["kftrain"]["headline"])
        if verdict != "succeeded" and self.tells not in ("nothing-at-the-end", "little"):
            self.defer(trigger=TimeDeltaTrigger(timedelta(days=1)), method_name="execute_complete")


def _ago(**ago: float) -> str:
    return (datetime.now(timezone.utc) - timedelta(**ago)).isoformat(timespec="seconds")


def _job() -> Object:
    return {
        "api_version": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "namespace": "team-a",
        "name": _NAME,
        "uid": _UID,
        "cluster": "",
    }


def _pods() -> list[tuple[str, int]]:
    return [("master", 0), ("worker", 0), ("worker", 1), ("worker", 2)]


def _log_links() -> list[Object]:
    return [
        {
            "role": role,
            "index": index,
            "pod": f"{_NAME}-{role}-{index}",
            "url": f"https://logs.example.com/?pod={_NAME}-{role}-{index}",
        }
        for role, index in _pods()
    ]


def _replicas(phase: str, **changed: Object) -> list[Object]:
    """`changed` is by role and index, such as worker_2."""
    return [
        {
            "role": role,
            "index": index,
            "pod": f"{_NAME}-{role}-{index}",
            "phase": phase,
            "node": f"gpu-node-{11 + 3 * number}",
            "restarts": 0,
            "exit_code": None,
            "leads": role == "master",
            **changed.get(f"{role}_{index}", {}),
        }
        for number, (role, index) in enumerate(_pods())
    ]


def _curves(share: float, points: int = 120) -> Object:
    """What a training tells until that share of it is done."""
    steps = [share * (number + 1) / points for number in range(points)]
    hours = {
        number: _ago(hours=2 * share * (1 - number / (points - 1))) for number in range(points)
    }
    waves = [0.02 * math.sin(31 * step) + 0.012 * math.sin(83 * step) for step in steps]
    return {
        "loss": [
            [hours[number], round(0.21 + 0.7 * math.exp(-4 * step) + waves[number], 4)]
            for number, step in enumerate(steps)
        ],
        "accuracy": [
            [hours[number], round(0.94 - 0.42 * math.exp(-5 * step) - waves[number] / 2, 4)]
            for number, step in enumerate(steps)
        ],
        "learning_rate": [
            [hours[number], round(0.003 * math.cos(math.pi * step / 2), 6)]
            for number, step in enumerate(steps)
        ],
    }


def _progress(share: float, total: int = 12_000) -> Object:
    curves = _curves(share)
    ends = datetime.now(timezone.utc) + timedelta(hours=2 * (1 - share))
    return {
        "step": round(share * total),
        "total": total,
        "percent": round(100 * share, 1),
        **({"ends": ends.isoformat(timespec="seconds")} if share < 1 else {}),
        "latest": {name: points[-1][1] for name, points in curves.items()},
        "metrics": curves,
    }


def _kftrain(phase: str, **more: Any) -> Object:
    return {
        "uid": _UID,
        "phase": phase,
        "since": _ago(hours=2.2),
        "written": _ago(seconds=20),
        **more,
    }


def _running() -> Object:
    told = _kftrain(
        "Running",
        replicas=_replicas("Running", worker_1={"restarts": 1}),
        progress=_progress(0.42),
    )
    return {"job": _job(), "log_links": _log_links(), "kftrain": told}


def _queued() -> Object:
    words = (
        "couldn't assign flavors to pod set worker: insufficient unused quota for nvidia.com/gpu "
        "in flavor a100, 4 more needed"
    )
    queue = {"name": "team-a", "words": words, "since": _ago(hours=3.2)}
    return {"job": _job(), "kftrain": _kftrain("Queued", since=_ago(hours=3.3), queue=queue)}


def _usage() -> Object:
    return {
        "queued": 12.4,
        "starting": 38.0,
        "running": 7231.0,
        "pod_seconds": 28_950.0,
        "devices": {"nvidia.com/gpu": 28_950.0},
        "restarts": 1,
        "system_retries": 0,
    }


def _failed() -> Object:
    headline = (
        f"worker-2 (pod {_NAME}-worker-2, container pytorch): exit code 137, OOMKilled, at "
        "2026-11-22 10:04:31 UTC: the container needed more than its memory limit of 16Gi"
    )
    replicas = _replicas(
        "Running",
        worker_2={"phase": "Failed", "exit_code": 137},
        worker_1={"phase": "Failed", "exit_code": 1, "restarts": 1},
    )
    told = _kftrain(
        "Failed",
        since=_ago(seconds=30),
        finished=_ago(seconds=30),
        verdict="failed",
        headline=headline,
        replicas=replicas,
        progress=_progress(0.67),
        usage={**_usage(), "unseen": "Pods that ended within 10 s are not counted."},
    )
    return {"job": _job(), "log_links": _log_links(), "kftrain": told}


def _succeeded() -> Object:
    told = _kftrain(
        "Succeeded",
        since=_ago(seconds=30),
        finished=_ago(seconds=30),
        verdict="succeeded",
        replicas=_replicas("Succeeded", **{f"worker_{n}": {"exit_code": 0} for n in range(3)}),
        progress=_progress(1.0),
        usage=_usage(),
    )
    return {"job": _job(), "log_links": _log_links(), "kftrain": told}


def _stale() -> Object:
    """A trigger of the try before has written late."""
    return {"job": _job(), "kftrain": _kftrain("Restarting") | {"uid": "of-the-try-before"}}


_HOSTILE = "<img src=x onerror='window.hacked = true'>"


def _hostile() -> Object:
    """Somebody else has written the XComs: markup, programs as links, nonsense, a shell's words."""
    link = {"role": _HOSTILE, "index": 0, "pod": "a-pod", "url": "javascript:window.hacked=true"}
    other = {"role": "worker", "index": 1, "pod": "other-pod", "url": "https://logs.example.com/1"}
    told = {
        "uid": _UID,
        "phase": _HOSTILE,
        "since": "not a time",
        "finished": 12,
        "headline": f"{_HOSTILE} is only text",
        "queue": ["no", "queue"],
        "replicas": ["nonsense", None, {"pod": "a-pod", "phase": _HOSTILE, "restarts": "many"}],
        "progress": {
            "step": "many",
            "percent": 250,
            "latest": {_HOSTILE: 0.5},
            "metrics": {"loss": [[None, "x"], "y", [_ago(hours=1), 1.0]], "rate": "none"},
        },
        "usage": {"running": "long", "devices": [1], "restarts": {}},
    }
    job = {**_job(), "name": "job; rm -rf ~"}
    return {"job": job, "log_links": [link, other, "nonsense"], "kftrain": told}


_TOLD: dict[str, Callable[[], Object]] = {
    "running": _running,
    "queued": _queued,
    "failed": _failed,
    "succeeded": _succeeded,
    "stale": _stale,
    "hostile": _hostile,
    "little": lambda: {"job": _job(), "log_links": _log_links()},
    "nothing": dict,
    "nothing-at-the-end": dict,
}

for dag_id in ("churn", "secret"):
    with DAG(dag_id, params={"tells": "running"}):
        prepare = EmptyOperator(task_id="prepare")
        # The second try waits.
        train = TellingOperator(task_id="train", retries=1, retry_delay=timedelta(seconds=1))
        prepare >> train >> TellingOperator(task_id="evaluate")

with DAG("regions"):
    TellingOperator.partial(task_id="train").expand(tells=["succeeded", "running", "queued"])
