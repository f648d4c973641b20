"""kubectl on the embedded cluster."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cluster.jobs import pytorch_job, replica, shell
from tests.cluster.world import Pod, World, eventually
from tests.control_plane.api import Manifest

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")


class Kubectl:
    """In the namespace of a world, and with a home of its own."""

    def __init__(self, world: World, home: Path) -> None:
        self._words = ["kubectl", "--namespace", world.namespace]
        self._env = {
            "HOME": str(home),
            "KUBECONFIG": str(world.target.kubeconfig),
            "PATH": os.environ["PATH"],
        }

    def run(self, *words: str, given: Manifest | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self._words, *words],
            env=self._env,
            input=json.dumps(given) if given else None,
            capture_output=True,
            text=True,
            timeout=40,
            check=False,
        )

    def __call__(self, *words: str, given: Manifest | None = None) -> str:
        done = self.run(*words, given=given)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def kubectl(world: World, tmp_path: Path) -> Kubectl:
    return Kubectl(world, tmp_path)


def _job(script: str = "echo hi") -> Manifest:
    return pytorch_job({"Master": replica("pytorch", script)})


# ----- requests in protobuf


@pytest.mark.parametrize(
    ("words", "kind", "field", "wanted"),
    [
        (["configmap", "n", "--from-literal=a=1"], "ConfigMap", "data", {"a": "1"}),
        (["secret", "generic", "n", "--from-literal=a=x"], "Secret", "data", {"a": "eA=="}),
        (["serviceaccount", "n"], "ServiceAccount", "kind", "ServiceAccount"),
    ],
    ids=["configmap", "secret", "serviceaccount"],
)
def test_it_creates_what_it_sends_in_protobuf(
    kubectl: Kubectl, world: World, words: list[str], kind: str, field: str, wanted: object
) -> None:
    kubectl("create", *words)
    assert world.find(kind, "n")[field] == wanted
    again = kubectl.run("create", *words)
    assert again.returncode == 1
    assert again.stderr.endswith('"n" already exists\n')


def test_it_creates_and_deletes_a_namespace(kubectl: Kubectl, world: World) -> None:
    name = f"{world.namespace}-2"
    kubectl("create", "namespace", name)
    assert kubectl("get", "namespace", name, "--no-headers").split()[:2] == [name, "Active"]
    kubectl("delete", "namespace", name)
    assert kubectl.run("get", "namespace", name).returncode == 1


def test_it_asks_what_it_may_do(kubectl: Kubectl) -> None:
    assert kubectl("auth", "can-i", "create", "pytorchjobs.kubeflow.org") == "yes\n"


def test_another_kind_in_protobuf_is_refused_by_its_name(kubectl: Kubectl) -> None:
    refused = kubectl.run("create", "job", "j", "--image=x")
    assert "Job is not supported in protobuf" in refused.stderr


# ----- the life of a job


def test_a_job_is_applied_and_waited_for_and_deleted(kubectl: Kubectl, world: World) -> None:
    job = _job()
    assert kubectl("apply", "-f", "-", given=job) == "pytorchjob.kubeflow.org/job created\n"
    assert kubectl("apply", "-f", "-", given=job) == "pytorchjob.kubeflow.org/job unchanged\n"
    kubectl("wait", "--for=condition=Succeeded", "pytorchjob/job", "--timeout=30s")
    assert kubectl("get", "pytorchjobs", "--no-headers").split()[:2] == ["job", "Succeeded"]
    assert kubectl("get", "pods", "--no-headers").split()[:3] == [
        "job-master-0",
        "0/1",
        "Completed",
    ]
    assert kubectl("logs", "job-master-0") == "hi\n"
    kubectl("delete", "pytorchjob", "job")
    assert kubectl("get", "pytorchjobs", "-o", "name") == ""
    eventually(lambda: world.names("Pod") == [])


def test_a_change_is_applied_and_shown_before(kubectl: Kubectl) -> None:
    job = _job()
    kubectl("apply", "-f", "-", given=job)
    changed = {**job, "spec": {**job["spec"], "runPolicy": {"backoffLimit": 7}}}
    shown = kubectl.run("diff", "-f", "-", given=changed)
    assert (shown.returncode, "+    backoffLimit: 7" in shown.stdout) == (1, True)
    kubectl("apply", "-f", "-", given=changed)
    policy = kubectl("get", "pytorchjob", "job", "-o", "jsonpath={.spec.runPolicy.backoffLimit}")
    assert policy == "7"


def test_an_unknown_field_is_refused_with_its_path(kubectl: Kubectl, world: World) -> None:
    job = _job()
    job["spec"]["pytorchReplicaSpecs"]["Master"]["repicas"] = 1
    refused = kubectl.run("apply", "-f", "-", given=job)
    assert refused.returncode == 1
    assert 'unknown field "spec.pytorchReplicaSpecs.Master.repicas"' in refused.stderr
    assert world.names("PyTorchJob", "kubeflow.org/v1") == []


def test_a_job_is_described_with_its_events(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", given=_job())
    kubectl("wait", "--for=condition=Succeeded", "pytorchjob/job", "--timeout=30s")
    text = kubectl("describe", "pytorchjob", "job")
    assert "PyTorchJob job is successfully completed." in text
    assert "SuccessfulCreatePod" in text


def test_labels_and_annotations_are_set(kubectl: Kubectl, world: World) -> None:
    kubectl("create", "configmap", "c")
    kubectl("label", "configmap", "c", "a=b")
    kubectl("annotate", "configmap", "c", "note=this")
    metadata = world.find("ConfigMap", "c")["metadata"]
    assert (metadata["labels"], metadata["annotations"]) == ({"a": "b"}, {"note": "this"})
    assert kubectl("get", "configmaps", "-l", "a=b", "-o", "name") == "configmap/c\n"


# ----- pods


def test_a_pod_is_run_and_its_log_followed(kubectl: Kubectl) -> None:
    script = "for i in 1 2 3; do echo $i; sleep 0.2; done"
    words = ["--image=x", "--restart=Never", "--command", "--", *shell(script)]
    kubectl("run", "p", *words)
    kubectl("wait", "--for=jsonpath={.status.startTime}", "pod/p", "--timeout=30s")
    eventually(lambda: kubectl.run("logs", "p").stdout)
    assert kubectl("logs", "-f", "p") == "1\n2\n3\n"
    assert "Successfully assigned" in kubectl("describe", "pod", "p")


def test_a_pod_is_waited_for_until_it_is_gone(kubectl: Kubectl, world: World) -> None:
    pod = world.pod("p", "sleep", "60")
    pod.phase("Running")
    kubectl("delete", "pod", "p", "--grace-period=1")
    assert pod.is_gone()


def test_changes_are_shown_as_they_come(kubectl: Kubectl, world: World) -> None:
    pod = world.pod("p", *shell("sleep 1"))
    shown = kubectl("get", "pods", "--watch", "--request-timeout=4s", "--no-headers")
    assert "Completed" in shown.splitlines()[-1]
    assert Pod(world, "p").now()["status"]["phase"] == pod.ends()["phase"]


# ----- the cluster


def test_what_there_is_is_told(kubectl: Kubectl) -> None:
    versions = kubectl("api-versions").split()
    assert {"v1", "batch/v1", "kubeflow.org/v1", "kubeflow.org/v2beta1"} <= {*versions}
    resources = kubectl("api-resources", "--no-headers", "-o", "name").split()
    assert {"pods", "jobs.batch", "trainjobs.trainer.kubeflow.org"} <= {*resources}
    (node,) = kubectl("get", "nodes", "--no-headers").splitlines()
    assert node.split()[1] == "Ready"
    assert "kftrain-agent" in kubectl("describe", "nodes")
