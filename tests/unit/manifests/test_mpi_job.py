"""MPIJob for both operators that serve it, and HorovodJob."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from airflow_kftrain import (
    Horovod,
    HorovodJob,
    MPIJob,
    Replica,
    Resources,
    build_manifest,
)

from .reading import groups, main

COMMAND = ["mpirun", "python", "train.py"]


def mpi(**given: Any) -> dict[str, Any]:
    explicit = {"workers", "worker"} & set(given)
    default = {} if explicit else {"workers": 2}
    return build_manifest(MPIJob(image="img", **default, **given))


@pytest.mark.parametrize(
    ("version", "api_version"),
    [
        (None, "kubeflow.org/v2beta1"),
        ("v2beta1", "kubeflow.org/v2beta1"),
        ("v1", "kubeflow.org/v1"),
    ],
)
def test_one_spec_serves_both_operators(version: Any, api_version: str) -> None:
    manifest = mpi(version=version, command=COMMAND, slots_per_worker=4)
    assert manifest["apiVersion"] == api_version
    assert manifest["spec"]["slotsPerWorker"] == 4
    assert {role: group["replicas"] for role, group in groups(manifest).items()} == {
        "Launcher": 1,
        "Worker": 2,
    }
    assert main(manifest, "Launcher")["command"] == COMMAND
    assert "command" not in main(manifest, "Worker")


def test_v1_is_told_which_container_is_the_main_one() -> None:
    assert mpi(version="v1")["spec"]["mainContainer"] == "mpi"
    assert "mainContainer" not in mpi()["spec"]


@pytest.mark.parametrize("implementation", ["OpenMPI", "Intel", "MPICH"])
def test_mpi_operator_is_told_the_implementation(implementation: str) -> None:
    manifest = mpi(implementation=implementation)
    assert manifest["spec"]["mpiImplementation"] == implementation
    assert "mpiImplementation" not in mpi()["spec"]


def test_the_launcher_gets_no_gpus_of_the_jobs() -> None:
    manifest = mpi(container_resources=Resources(cpu=4, gpu=8, extended={"rdma/hca": 1}))
    assert main(manifest, "Launcher")["resources"] == {
        "requests": {"cpu": "4"},
        "limits": {"cpu": "4"},
    }
    assert main(manifest, "Worker")["resources"]["limits"] == {
        "cpu": "4",
        "nvidia.com/gpu": "8",
        "rdma/hca": "1",
    }


def test_a_job_of_nothing_but_gpus_leaves_the_launcher_without_resources() -> None:
    manifest = mpi(container_resources=Resources(gpu=8))
    assert "resources" not in main(manifest, "Launcher")


def test_a_launcher_that_asks_for_a_gpu_gets_it() -> None:
    manifest = mpi(
        launcher=Replica(container_resources=Resources(gpu=1)),
        worker=Replica(count=2, container_resources=Resources(gpu=8)),
    )
    assert main(manifest, "Launcher")["resources"]["limits"] == {"nvidia.com/gpu": "1"}


def test_the_command_of_the_workers_is_in_command_where_no_operator_overwrites_it() -> None:
    manifest = mpi(
        command=COMMAND,
        args=["--fast"],
        worker=Replica(count=2, command=["/usr/sbin/sshd", "-De"], args=["-p", 22]),
    )
    assert main(manifest, "Worker")["command"] == ["/usr/sbin/sshd", "-De"]
    assert main(manifest, "Worker")["args"] == ["-p", "22"]
    assert main(manifest, "Launcher")["args"] == ["--fast"]


def test_a_launcher_may_have_a_command_of_its_own() -> None:
    manifest = mpi(command=COMMAND, launcher=Replica(command=["sleep"]), worker=Replica())
    assert main(manifest, "Launcher")["command"] == ["sleep"]


# Horovod


def horovod(settings: Horovod | None = None, **given: Any) -> list[str]:
    """The launcher's command."""
    job = HorovodJob(
        **{"image": "img", "command": ["python", "train.py"], "workers": 4, **given},
        **({} if settings is None else {"horovod": settings}),
    )
    found: list[str] = main(build_manifest(job), "Launcher")["command"]
    return found


def test_horovodrun_starts_as_many_ranks_as_the_workers_have_slots() -> None:
    assert horovod(slots_per_worker=2) == [
        "horovodrun",
        "-np",
        "8",
        "--min-np",
        "8",
        "--max-np",
        "8",
        "--slots-per-host",
        "2",
        "--host-discovery-script",
        "/etc/mpi/discover_hosts.sh",
        "--elastic-timeout",
        "1200",
        "--log-level",
        "INFO",
        "python",
        "train.py",
    ]


def test_horovodrun_is_told_all_that_the_author_sets() -> None:
    settings = Horovod(
        min_np=2,
        max_np="16",
        discovery_script="/hosts.sh",
        elastic_timeout=timedelta(minutes=5),
        network_interface="eth0",
        log_level="DEBUG",
        verbose=True,
    )
    assert horovod(settings, workers="4") == [
        "horovodrun",
        "-np",
        "4",
        "--min-np",
        "2",
        "--max-np",
        "16",
        "--slots-per-host",
        "1",
        "--host-discovery-script",
        "/hosts.sh",
        "--elastic-timeout",
        "300",
        "--log-level",
        "DEBUG",
        "--network-interface",
        "eth0",
        "--verbose",
        "python",
        "train.py",
    ]


def test_a_launchers_own_program_is_the_one_that_is_started() -> None:
    given = {"workers": None, "launcher": Replica(command=["python", "own.py"])}
    command = horovod(**given, worker=Replica(count=2))
    assert command[:3] == ["horovodrun", "-np", "2"]
    assert command[-2:] == ["python", "own.py"]
