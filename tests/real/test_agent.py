"""The node agent under a real control plane: real scheduler, real operators, real processes.

`$$$$` in a command is a shell's `$$`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_kftrain.local.api_client import ApiClient, ApiError, core, read_kubeconfig
from airflow_kftrain.local.processes import PACKAGE_ROOT
from tests.control_plane import MPI_OPERATOR, ControlPlane

Object = dict[str, Any]

_PATIENCE = 40.0

ALL_REDUCE = """
import os, socket, time
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
place = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if rank == 0:
    server = socket.create_server(place)
    others = [server.accept()[0] for _ in range(world - 1)]
    total = 1 + sum(int(other.recv(20)) for other in others)
    for other in others:
        other.sendall(b"%d" % total)
else:
    end = time.monotonic() + 30
    while True:
        try:
            master = socket.create_connection(place, 5)
            break
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)
    master.sendall(b"%d" % (rank + 1))
    total = int(master.recv(20))
assert total == world * (world + 1) // 2, total
open(os.environ["KFTRAIN_RESULT_FILE"], "w").write(str(total))
"""

ALL_PEERS = """
import json, os, socket, time
config = json.loads(os.environ["TF_CONFIG"])
task, cluster = config["task"], config["cluster"]
host, port = cluster[task["type"]][task["index"]].split(":")
server = socket.create_server((host, int(port)), backlog=50)
peers = [peer.split(":") for role in cluster.values() for peer in role]
for host, port in peers:
    end = time.monotonic() + 30
    while True:
        try:
            socket.create_connection((host, int(port)), 5).close()
            break
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)
open(os.environ["KFTRAIN_RESULT_FILE"], "w").write(str(len(peers)))
time.sleep(1)
"""

FAKE_MPIRUN = """#!{python}
import os, subprocess, sys
agent = os.environ["OMPI_MCA_plm_rsh_agent"]
options = os.environ.get("OMPI_MCA_plm_rsh_args", "").split()
hosts = [line.split()[0] for line in open(os.environ["OMPI_MCA_orte_default_hostfile"])]
ranks = [
    subprocess.Popen([agent, *options, "-x", host, *sys.argv[1:]], stdout=subprocess.PIPE)
    for host in hosts
]
for rank in ranks:
    sys.stdout.write(rank.communicate()[0].decode())
sys.exit(max(rank.returncode for rank in ranks))
"""


class World:
    """One namespace of the control plane, with an agent in it."""

    def __init__(self, kubeconfig: str, namespace: str) -> None:
        self._cluster = read_kubeconfig(kubeconfig)
        self.namespace = namespace

    def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        async def work() -> Any:
            async with ApiClient(self._cluster) as client:
                return await getattr(client, method)(*args, **kwargs)

        return asyncio.run(work())

    def path(self, name: str = "", part: str = "", plural: str = "pods") -> str:
        return core(self.namespace, plural, name, part)

    def pod(self, name: str, *command: str, **fields: Any) -> None:
        container = {"name": "main", "image": "x", "command": list(command)}
        container |= fields.pop("container", {})
        spec = {"restartPolicy": "Never", "containers": [container], **fields}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        self.call("create", self.path(), body)

    def until(self, name: str, good: Callable[[Object], Any]) -> Object:
        end = time.monotonic() + _PATIENCE
        while True:
            pod: Object = self.call("get", self.path(name))
            if good(pod):
                return pod
            assert time.monotonic() < end, json.dumps(pod["status"], indent=1)
            time.sleep(0.1)

    def ended(self, name: str) -> Object:
        pod = self.until(name, lambda pod: pod["status"].get("phase") in ("Succeeded", "Failed"))
        return dict(pod["status"])

    def log(self, name: str, **options: str) -> str:
        query = "&".join(f"{key}={value}" for key, value in options.items())

        async def work() -> str:
            async with ApiClient(self._cluster) as client:
                assert client._session is not None
                url = f"{self._cluster.server}{self.path(name, 'log')}?{query}"
                async with client._session.get(url) as response:
                    return await response.text()

        return asyncio.run(work())

    def job(self, api_version: str, plural: str, name: str, spec: Object, kind: str) -> None:
        path = f"/apis/{api_version}/namespaces/{self.namespace}/{plural}"
        body = {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec}
        self.call("create", path, body)

    def job_ends(self, api_version: str, plural: str, name: str) -> str:
        path = f"/apis/{api_version}/namespaces/{self.namespace}/{plural}/{name}"
        end = time.monotonic() + _PATIENCE
        while True:
            status = self.call("get", path).get("status") or {}
            for condition in status.get("conditions") or []:
                final = condition["type"] in ("Succeeded", "Failed", "Complete")
                if final and condition["status"] == "True":
                    return str(condition["type"])
            assert time.monotonic() < end, status
            time.sleep(0.1)

    def pods(self) -> list[Object]:
        return list(self.call("list", self.path())[0])

    def messages(self) -> set[str]:
        """What main containers left as their termination messages, all pods having ended: a job
        is over with its master."""
        statuses = [self.ended(pod["metadata"]["name"]) for pod in self.pods()]
        return {the_end(status).get("message", "") for status in statuses}


class AgentProcess:
    def __init__(self, kubeconfig: str, name: str, folder: Path) -> None:
        self.folder = folder
        self._words = ["--kubeconfig", kubeconfig, "--name", name, "--state-dir", str(folder)]
        self._words += ["--backoff", "0.5", "--cpu", "64", "--gpus", "4"]
        self._log = folder.parent / f"{folder.name}.log"
        self.start()

    def start(self) -> None:
        with open(self._log, "w") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "airflow_kftrain.local.agent", *self._words],
                stderr=output,
                env={**os.environ, "PYTHONPATH": PACKAGE_ROOT, "SECRET_OF_THE_AGENT": "hush"},
            )
        end = time.monotonic() + _PATIENCE
        while "is ready" not in self._log.read_text():
            assert self.process.poll() is None, self._log.read_text()
            assert time.monotonic() < end
            time.sleep(0.05)

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(60)


@pytest.fixture(scope="module")
def agent(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentProcess]:
    folder = tmp_path_factory.mktemp("agent") / "state"
    agent = AgentProcess(str(plane.kubeconfig), f"n-{secrets.token_hex(4)}", folder)
    yield agent
    assert agent.stop() == 0
    assert not folder.exists()


@pytest.fixture
def world(plane: ControlPlane, agent: AgentProcess) -> Iterator[World]:
    name = f"t-{secrets.token_hex(4)}"
    world = World(str(plane.kubeconfig), name)
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    world.call("create", core("", "namespaces"), namespace)
    yield world
    world.call("delete", core("", "namespaces", name))


def the_end(status: Object) -> Object:
    return dict(status["containerStatuses"][0]["state"]["terminated"])


def alive(word: str) -> bool:
    listing = subprocess.run(["ps", "-axo", "args="], capture_output=True, text=True, check=True)
    return any(word in line for line in listing.stdout.splitlines())


# ----- pods


@pytest.mark.parametrize("container", [{"command": []}, {"workingDir": "/not/there"}])
def test_what_only_an_image_could_give_is_waited_for(world: World, container: Object) -> None:
    world.pod("p", "true", container=container)

    def waits(pod: Object) -> bool:
        (status,) = pod["status"].get("containerStatuses") or [{}]
        reason = status.get("state", {}).get("waiting", {}).get("reason")
        return bool(reason == "CreateContainerError")

    assert world.until("p", waits)["status"]["phase"] == "Pending"


def test_deletion_ends_all_processes_and_keeps_to_the_grace_period(world: World) -> None:
    mark = f"9{secrets.randbelow(10**6):06d}.5"
    stubborn = f"trap '' TERM; setsid sleep {mark} & while :; do sleep 0.2; done"
    world.pod("p", "sh", "-c", stubborn, terminationGracePeriodSeconds=2)
    world.until("p", lambda pod: pod["status"].get("phase") == "Running" and alive(mark))
    start = time.monotonic()
    world.call("delete", world.path("p"))
    with contextlib.suppress(ApiError):
        while world.call("get", world.path("p")):
            assert time.monotonic() < start + _PATIENCE
            time.sleep(0.1)
    assert 1.5 < time.monotonic() - start < 6
    assert not alive(mark)


def test_what_is_not_supported_is_told_once(world: World) -> None:
    probe = {"livenessProbe": {"exec": {"command": ["true"]}}}
    world.pod("p", "true", container=probe)
    world.ended("p")
    end = time.monotonic() + _PATIENCE
    while True:
        events = world.call("list", world.path(plural="events"))[0]
        told = [e["message"] for e in events if e["reason"] == "NotSupported"]
        if told:
            break
        assert time.monotonic() < end
        time.sleep(0.1)
    assert [text.partition(": ")[0] for text in told] == ["spec.containers[0].livenessProbe"]


def test_an_agent_that_was_killed_leaves_no_process_and_takes_up_its_pods_again(
    plane: ControlPlane, agent: AgentProcess, world: World
) -> None:
    mark = f"9{secrets.randbelow(10**6):06d}.5"
    world.pod("stays", "sh", "-c", f"sleep {mark} & sleep {mark}")
    world.pod("goes", "sleep", mark)
    for name in ("stays", "goes"):
        world.until(name, lambda pod: pod["status"].get("phase") == "Running")
    agent.process.send_signal(signal.SIGKILL)
    agent.process.wait()
    end = time.monotonic() + _PATIENCE
    while alive(mark):
        assert time.monotonic() < end
        time.sleep(0.1)
    world.call("delete", world.path("goes"))
    agent.start()
    assert the_end(world.ended("stays"))["reason"] == "ContainerStatusUnknown"
    with contextlib.suppress(ApiError):
        while world.call("get", world.path("goes")):
            assert time.monotonic() < end
            time.sleep(0.1)


# ----- jobs


def a_replica(container: str, count: int, *command: str) -> Object:
    env = [{"name": "KFTRAIN_RESULT_FILE", "value": "/dev/termination-log"}]
    main = {"name": container, "image": "x", "command": list(command), "env": env}
    template = {"spec": {"containers": [main]}}
    return {"replicas": count, "restartPolicy": "Never", "template": template}


def test_three_pytorch_jobs_at_once(world: World) -> None:
    command = ("python", "-c", ALL_REDUCE)
    roles = {"Master": a_replica("pytorch", 1, *command)}
    roles["Worker"] = a_replica("pytorch", 2, *command)
    spec = {"pytorchReplicaSpecs": roles, "runPolicy": {"cleanPodPolicy": "None"}}
    names = ("one", "two", "three")
    for name in names:
        world.job("kubeflow.org/v1", "pytorchjobs", name, spec, "PyTorchJob")
    for name in names:
        assert world.job_ends("kubeflow.org/v1", "pytorchjobs", name) == "Succeeded"
    assert world.messages() == {"6"}
    annotations = world.call("get", world.path("one-worker-0"))["metadata"]["annotations"]
    real = json.loads(annotations["kftrain.local/cluster-env"])["pytorch"]
    assert (real["MASTER_ADDR"], real["MASTER_PORT"]) == ("one-master-0", "23456")


def test_a_tf_job_reaches_all_peers(world: World) -> None:
    command = ("python", "-c", ALL_PEERS)
    roles = {"PS": a_replica("tensorflow", 1, *command)}
    roles["Worker"] = a_replica("tensorflow", 2, *command)
    spec = {"tfReplicaSpecs": roles, "runPolicy": {"cleanPodPolicy": "None"}}
    world.job("kubeflow.org/v1", "tfjobs", "tf", spec, "TFJob")
    assert world.job_ends("kubeflow.org/v1", "tfjobs", "tf") == "Succeeded"
    for name in ("tf-ps-0", "tf-worker-0", "tf-worker-1"):
        assert the_end(world.ended(name))["message"] == "3"


def test_a_train_job_on_two_nodes(world: World) -> None:
    rename = (
        "import os\n"
        "e = os.environ\n"
        "e['RANK'], e['WORLD_SIZE'] = e['PET_NODE_RANK'], e['PET_NNODES']\n"
        "e['MASTER_ADDR'], e['MASTER_PORT'] = e['PET_MASTER_ADDR'], e['PET_MASTER_PORT']\n"
        "e['KFTRAIN_RESULT_FILE'] = '/dev/termination-log'\n"
    )
    spec = {
        "runtimeRef": {"name": "torch-distributed"},
        "trainer": {"numNodes": 2, "command": ["python", "-c", rename + ALL_REDUCE]},
    }
    version = "trainer.kubeflow.org/v1alpha1"
    world.job(version, "trainjobs", "tj", spec, "TrainJob")
    assert world.job_ends(version, "trainjobs", "tj") == "Complete"
    assert world.messages() == {"3"}


def test_an_mpi_job_starts_its_ranks_in_worker_pods(
    plane: ControlPlane, world: World, tmp_path: Path
) -> None:
    mpirun = tmp_path / "mpirun"
    mpirun.write_text(FAKE_MPIRUN.format(python=sys.executable))
    mpirun.chmod(0o700)
    version = "kubeflow.org/v2beta1" if plane.profile == MPI_OPERATOR else "kubeflow.org/v1"
    worker = a_replica("mpi", 2)
    worker["template"]["spec"]["containers"][0]["env"].append({"name": "WHO", "value": "worker"})
    del worker["template"]["spec"]["containers"][0]["command"]
    launcher = a_replica("mpi", 1, str(mpirun), "echo", "$WHO", "$HOSTNAME")
    spec = {
        "slotsPerWorker": 1,
        "runPolicy": {"backoffLimit": 0, "cleanPodPolicy": "None"},
        "mpiReplicaSpecs": {"Launcher": launcher, "Worker": worker},
    }
    world.job(version, "mpijobs", "mp", spec, "MPIJob")
    assert world.job_ends(version, "mpijobs", "mp") == "Succeeded"
    (name,) = (p["metadata"]["name"] for p in world.pods() if "launcher" in p["metadata"]["name"])
    log = world.log(name, container="mpi")
    assert log.splitlines() == ["worker mp-worker-0", "worker mp-worker-1"]
