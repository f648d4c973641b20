"""Roles of jobs that run a program of tests/frameworks/programs, and what the programs tell."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.cluster.jobs import replica
from tests.cluster.world import Job, Pod, World
from tests.control_plane.api import Manifest

PYTHON = "/usr/bin/python3"
"""The interpreter that Debian's PyTorch is for."""
# Without the last two, torchrun of PyTorch 1.13 breaks on Python 3.11.
TORCHRUN = f"{PYTHON} -m torch.distributed.run -r 2 -t 2"

_PROGRAMS = Path(__file__).parent / "programs"
_CONFIG_MAP = "programs"


def put_programs(world: World) -> None:
    """Into a ConfigMap, from which `role` mounts them."""
    data = {file.name: file.read_text(encoding="utf-8") for file in _PROGRAMS.glob("*.py")}
    metadata = {"name": _CONFIG_MAP}
    world.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})


def volumes() -> Manifest:
    """Of a pod spec."""
    return {
        "volumes": [
            {"name": "programs", "configMap": {"name": _CONFIG_MAP}},
            {"name": "checkpoints", "emptyDir": {}},
        ]
    }


def mounts() -> Manifest:
    """Of a container."""
    return {
        "volumeMounts": [
            {"name": "programs", "mountPath": "/programs"},
            {"name": "checkpoints", "mountPath": "/checkpoints"},
        ]
    }


def environment(**variables: str) -> Manifest:
    """Of a container."""
    pod = {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    variables = {"RESULT_FILE": "/dev/termination-log", **variables}
    return {"env": [pod, *({"name": name, "value": value} for name, value in variables.items())]}


def role(name: str, script: str | None, count: int, **variables: str) -> Manifest:
    """`name` of the container."""
    fields = {**mounts(), **environment(**variables)}
    fields["terminationMessagePolicy"] = "FallbackToLogsOnError"
    return replica(name, script, count, pod=volumes(), **fields)


def with_programs(*steps: str) -> Manifest:
    """A patch of a TrainJob's runtime. Variables would be refused here: they are the trainer's."""
    pod = {"containers": [{"name": "node", **mounts()}], **volumes()}
    template = {"spec": {"template": {"spec": pod}}}
    jobs = [{"name": step, "template": template} for step in steps]
    spec = {"template": {"spec": {"replicatedJobs": jobs}}}
    return {"manager": "tests/frameworks", "trainingRuntimeSpec": spec}


def results(job: Job) -> dict[str, Any]:
    """What the program in each pod of the job has told, by the pod's name."""
    names = [name for name in job.pod_names() if name.startswith(f"{job.name}-")]
    return {name: result(job.world, name) for name in names}


def result(world: World, pod: str) -> Any:
    """A job may be over before its pods are: waits for the pod's end."""
    status = Pod(world, pod).ends()
    message = status["containerStatuses"][0]["state"]["terminated"].get("message", "")
    assert message.startswith("{"), f"{pod}: {status}"
    return json.loads(message)
