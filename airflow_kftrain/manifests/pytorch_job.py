"""PyTorchJob. An elastic one with a single node becomes a Kubernetes Job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_kftrain.kinds import BATCH_JOB, PYTORCH_JOB
from airflow_kftrain.manifests.pod_template import command_of, pod_template
from airflow_kftrain.manifests.replicated import replicated_job
from airflow_kftrain.manifests.run_policy import job_metadata, write_run_policy
from airflow_kftrain.specs.elastic import Elastic
from airflow_kftrain.specs.env import merge_env
from airflow_kftrain.specs.later import LATER
from airflow_kftrain.specs.nouns import given
from airflow_kftrain.specs.policies import RunPolicy
from airflow_kftrain.specs.pytorch_job import PyTorchJob
from airflow_kftrain.specs.replicas import Replica

_LAUNCHERS = ("torchrun", "accelerate", "deepspeed")
_LAUNCHER_MODULES = ("torch.distributed.", "accelerate.", "deepspeed.")


def build_pytorch_job(job: PyTorchJob) -> dict[str, Any]:
    elastic: Any = job.elastic
    if elastic is None:
        return replicated_job(PYTORCH_JOB, job, job.replicas)
    worker: Any = job.replicas["Worker"]
    if worker is not LATER and worker.count is LATER:
        # It may become a single node, which has other restart policies.
        worker = worker._replace(restart_policy=LATER)
    if elastic is LATER:
        return replicated_job(PYTORCH_JOB, job, {"Worker": worker})
    if worker is not LATER:
        worker = _under_torchrun(job, worker, elastic)
        # Decided here, after rendering: only now is the number of nodes certain.
        if elastic.max_nodes == 1:
            return _single_node_job(job, worker, elastic)
    manifest = replicated_job(PYTORCH_JOB, job, {"Worker": worker})
    manifest["spec"]["nprocPerNode"] = _as_text(elastic.nproc_per_node)
    manifest["spec"]["elasticPolicy"] = _elastic_policy(elastic)
    return manifest


def _elastic_policy(elastic: Elastic) -> dict[str, Any]:
    # torch's own timeouts are 10 minutes and one minute: a large image may take longer to reach the
    # slowest node.
    settings = {
        "join_timeout": _as_text(elastic.join_timeout),
        "read_timeout": _as_text(elastic.read_timeout),
        **(elastic.rdzv_conf if isinstance(elastic.rdzv_conf, Mapping) else {}),
    }
    policy = {
        "minReplicas": elastic.min_nodes,
        "maxReplicas": elastic.max_nodes,
        "maxRestarts": elastic.max_restarts,
        "rdzvBackend": "c10d",
        "rdzvId": elastic.rdzv_id,
        # Sorted, since another order must not make it another job.
        "rdzvConf": [{"key": key, "value": settings[key]} for key in sorted(settings)],
        "metrics": elastic.metrics,
    }
    return given(policy)


def _under_torchrun(job: PyTorchJob, worker: Replica, elastic: Elastic) -> Replica:
    """The worker with the command that its pods run. torchrun reads its settings from PET_
    variables, so a command that calls torchrun itself stays as it is; a Python program is started
    by torchrun."""
    several = elastic.nproc_per_node != 1 and elastic.nproc_per_node is not LATER
    alone = elastic.max_nodes == 1
    if alone and not several:
        return worker
    variables = {"OMP_NUM_THREADS": "1"} if several else {}
    if alone:
        # On a single node there is no operator that configures torchrun.
        variables["PET_STANDALONE"] = "1"
        variables["PET_NPROC_PER_NODE"] = _as_text(elastic.nproc_per_node)
        if elastic.max_restarts is not None:
            variables["PET_MAX_RESTARTS"] = _as_text(elastic.max_restarts)
    command, args = command_of(job, worker)
    if _is_program(command, args):
        # --no_python: the command names its own interpreter with its options. The underscore is for
        # torch 1, which does not know the dash.
        standalone = ["--standalone"] if alone else []
        command = ["torchrun", *standalone, "--no_python", *command]
    return worker._replace(command=command, args=args, env=_with(job, worker, variables))


def _is_program(command: Any, args: Any) -> bool:
    """Whether it is a Python program, and not a launcher written in Python."""
    if not isinstance(command, list) or not command or LATER in command:
        return False
    if not _base_name(command[0]).startswith("python"):
        return False
    words = [*command[1:], *(args if isinstance(args, list) else [])]
    program = _program(words)
    if program.endswith(".py"):
        return True
    return program not in _LAUNCHERS and not program.startswith(_LAUNCHER_MODULES)


def _program(words: list[Any]) -> str:
    """The module or script that Python runs with these arguments."""
    following = iter(words)
    for word in map(str, following):
        if word == "-m":
            return str(next(following, ""))
        if word.startswith("-m"):
            return word[2:]
        if word in ("-W", "-X"):
            next(following, None)
        elif not word.startswith("-"):
            return _base_name(word)
    return ""


def _base_name(path: str) -> str:
    return path.rpartition("/")[2]


def _with(job: PyTorchJob, worker: Replica, variables: Mapping[str, str]) -> Any:
    """The worker's variables and ours. The author's win, whether they are the worker's or the
    job's."""
    given: Any = merge_env(job.env or [], worker.env or [])
    if given is LATER:
        return given
    taken = {item["name"] for item in given}
    ours = [
        {"name": name, "value": value} for name, value in variables.items() if name not in taken
    ]
    return [*(worker.env or []), *ours]


def _single_node_job(job: PyTorchJob, worker: Replica, elastic: Elastic) -> dict[str, Any]:
    """A Job needs no training operator."""
    spec: dict[str, Any] = {"completions": 1, "parallelism": 1}
    policy: Any = job.run_policy
    if isinstance(policy, RunPolicy):
        # Without fields that mean nothing for a single pod: there are no others to clean up or to
        # schedule together.
        policy = policy._replace(clean_pods=None, scheduling=None)
        if policy.managed_by in PYTORCH_JOB.managers[:1]:
            policy = policy._replace(managed_by=None)
    write_run_policy(BATCH_JOB, spec, policy)
    template = pod_template(PYTORCH_JOB, PYTORCH_JOB.role("Worker"), job, worker)
    if worker.restart_policy is not None and isinstance(template.get("spec"), dict):
        template["spec"]["restartPolicy"] = worker.restart_policy
    spec["template"] = template
    return {
        "apiVersion": BATCH_JOB.api_version,
        "kind": BATCH_JOB.kind,
        "metadata": job_metadata(job),
        "spec": spec,
    }


def _as_text(value: Any) -> Any:
    return value if value is LATER else str(value)
