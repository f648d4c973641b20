"""Roles of jobs that run a program of tests/frameworks/programs, and the results of these
programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.cluster.jobs import replica
from tests.cluster.world import Job, Pod, World
from tests.control_plane.api import Manifest
from tests.control_plane.build import cache_root

PYTHON = "/usr/bin/python3"
"""The interpreter for Debian's PyTorch."""
# Without the last two, torchrun of PyTorch 1.13 fails on Python 3.11.
TORCHRUN = f"{PYTHON} -m torch.distributed.run -r 2 -t 2"

_FRAMEWORKS = cache_root().parent / "frameworks"
TENSORFLOW = str(_FRAMEWORKS / "tensorflow" / "bin" / "python")
"""The one of a virtual environment of its own, which scripts/install-frameworks makes."""
HOROVOD = str(_FRAMEWORKS / "horovod")
"""A virtual environment beside Debian's PyTorch."""

_PROGRAMS = Path(__file__).parent / "programs"
_CONFIG_MAP = "programs"


def put_programs(world: World) -> None:
    """Writes them to a ConfigMap, from which `role` mounts them."""
    data = {file.name: file.read_text(encoding="utf-8") for file in _PROGRAMS.glob("*.py")}
    metadata = {"name": _CONFIG_MAP}
    world.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})


def volumes() -> Manifest:
    """The volumes of a pod spec."""
    return {
        "volumes": [
            {"name": "programs", "configMap": {"name": _CONFIG_MAP}},
            {"name": "checkpoints", "emptyDir": {}},
        ]
    }


def mounts() -> Manifest:
    """The mounts of a container."""
    return {
        "volumeMounts": [
            {"name": "programs", "mountPath": "/programs"},
            {"name": "checkpoints", "mountPath": "/checkpoints"},
        ]
    }


def environment(**variables: str) -> Manifest:
    """The variables of a container."""
    pod = {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    variables = {"RESULT_FILE": "/dev/termination-log", **variables}
    return {"env": [pod, *({"name": name, "value": value} for name, value in variables.items())]}


def role(name: str, script: str | None, count: int, **variables: str) -> Manifest:
    """`name` is that of the container."""
    fields = {**mounts(), **environment(**variables)}
    fields["terminationMessagePolicy"] = "FallbackToLogsOnError"
    return replica(name, script, count, pod=volumes(), **fields)


def with_programs(*steps: str) -> Manifest:
    """A patch of a TrainJob's runtime. Variables would be rejected here: they belong to the
    trainer."""
    pod = {"containers": [{"name": "node", **mounts()}], **volumes()}
    template = {"spec": {"template": {"spec": pod}}}
    jobs = [{"name": step, "template": template} for step in steps]
    spec = {"template": {"spec": {"replicatedJobs": jobs}}}
    return {"manager": "tests/frameworks", "trainingRuntimeSpec": spec}


def results(job: Job) -> dict[str, Any]:
    """The results of the program in each pod of the job, by the pod's name."""
    names = [name for name in job.pod_names() if name.startswith(f"{job.name}-")]
    return {name: result(job.world, name) for name in names}


def result(world: World, pod: str) -> Any:
    """Waits for the end of the pod, since the job may end before."""
    status = Pod(world, pod).ends()
    message = status["containerStatuses"][0]["state"]["terminated"].get("message", "")
    assert message.startswith("{"), f"{pod}: {status}"
    return json.loads(message)
