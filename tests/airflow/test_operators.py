"""Operators as a DAG file creates them and Airflow renders them. No cluster is needed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
import yaml
from airflow.sdk import DAG, BaseOperator, task
from airflow.sdk.log import mask_secret
from kubernetes.client import models as k8s

from airflow_kftrain import (
    Elastic,
    FromSecret,
    Horovod,
    HorovodJobOperator,
    InvalidSpec,
    Lifecycle,
    Links,
    Logs,
    MPIJobOperator,
    Mpirun,
    Pod,
    PyTorchJobOperator,
    Replica,
    Resources,
    RunPolicy,
    TFJobOperator,
    Timeouts,
    TrainingJobOperator,
    TrainingJobSensor,
    TrainJobOperator,
    errors,
)
from airflow_kftrain.airflow_compat import exceptions
from airflow_kftrain.operators.ending import as_airflow_says

BATCH_JOB = """
apiVersion: batch/v1
kind: Job
spec:
  parallelism: {{ params.n }}
  template: {spec: {containers: [{name: main, image: "img:{{ ds }}"}]}}
"""
CONTEXT: dict[str, Any] = {"ds": "2026-11-21", "params": {"n": 3, "memory": "2Gi"}}

SMALLEST: dict[str, Callable[..., BaseOperator]] = {
    "PyTorchJob": lambda **more: PyTorchJobOperator(image="i", workers=1, **more),
    "TFJob": lambda **more: TFJobOperator(image="i", workers=1, **more),
    "MPIJob": lambda **more: MPIJobOperator(image="i", command=["mpirun"], workers=1, **more),
    "HorovodJob": lambda **more: HorovodJobOperator(image="i", command=["a"], workers=1, **more),
    "TrainJob": lambda **more: TrainJobOperator(runtime="torch", **more),
    "raw": lambda **more: TrainingJobOperator(manifest=BATCH_JOB, **more),
}
each = pytest.mark.parametrize("make", SMALLEST.values(), ids=list(SMALLEST))


def rendered(operator: Any) -> Any:
    operator.render_template_fields(dict(CONTEXT))
    return operator


def manifest_of(operator: Any) -> dict[str, Any]:
    from airflow_kftrain import build_manifest

    return build_manifest(operator.spec())


# When the DAG file is parsed


@each
def test_the_least_is_enough(make: Callable[..., Any]) -> None:
    operator = make(task_id="t")
    assert operator.kubernetes_conn_id == "kubernetes_default"
    assert operator.namespace is None
    assert operator.wait_for_completion is True
    assert [link.name for link in operator.operator_extra_links] == [
        "Training job",
        "Leader logs",
        "Worker logs",
        "Dashboard",
        "Deferral",  # never shown: it has no URL
    ]


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"workers": -1}, "workers"),
        ({"workers": 2, "master": Replica()}, "workers"),
        ({"workers": 1, "image": 7}, "image"),
        ({"workers": 1, "image": None}, "image"),
        ({"workers": 1, "command": "python train.py"}, "command"),
        ({"workers": 1, "pod": Pod(labels={"a": "not legal"})}, "pod.labels['a']"),
        ({"worker": Replica(count="{{ n }}", image=""), "image": "i"}, "worker.image"),
        (
            {"workers": "{{ n }}", "run_policy": RunPolicy(clean_pods="Some")},
            "run_policy.clean_pods",
        ),
        ({"workers": 1, "lifecycle": Lifecycle(on_finish="burn")}, "lifecycle.on_finish"),
        ({"workers": 1, "lifecycle": "keep"}, "lifecycle"),
        ({"workers": 1, "logs": Logs(deferred="some")}, "logs.deferred"),
        ({"workers": 1, "links": Links(dashboard="ftp://x")}, "links.dashboard"),
        ({"workers": 1, "links": Links(dashboard="https://x/{it}")}, "links.dashboard"),
        ({"workers": 1, "timeouts": Timeouts(startup=timedelta(seconds=-1))}, "timeouts.startup"),
        ({"workers": 1, "poll_interval": 0}, "poll_interval"),
        ({"workers": 1, "namespace": "Not Legal"}, "namespace"),
        ({"workers": 1, "kubernetes_conn_id": ""}, "kubernetes_conn_id"),
        ({"workers": 1, "deferrable": "perhaps"}, "deferrable"),
        ({"workers": 1, "wait_for_completion": 2}, "wait_for_completion"),
    ],
)
def test_what_is_wrong_is_said_at_parse_by_the_name_of_its_field(
    arguments: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidSpec) as caught:
        PyTorchJobOperator(task_id="t", **{"image": "i", **arguments})
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (
            lambda: HorovodJobOperator(task_id="t", image="i", command=["a"], workers=1, horovod=3),
            "horovod",
        ),
        (
            lambda: MPIJobOperator(task_id="t", image="i", command=["a"], workers=1, version="v3"),
            "version",
        ),
        (lambda: TFJobOperator(task_id="t", image="i"), "workers"),
        (lambda: TrainJobOperator(task_id="t", runtime=""), "runtime"),
        (lambda: TrainingJobOperator(task_id="t", manifest="kind: Pod"), "kind"),
        (lambda: TrainingJobOperator(task_id="t", manifest=3), "manifest"),
        (lambda: TrainingJobSensor(task_id="t", kind="Pod", name="a"), "kind"),
        (lambda: TrainingJobSensor(task_id="t", kind="MPIJob", name="a"), "api_version"),
        (lambda: TrainingJobSensor(task_id="t", kind="TFJob", name=""), "name"),
    ],
)
def test_each_operator_checks_its_own_fields(make: Callable[[], Any], field: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        make()
    assert caught.value.field == field


def mpi_job(operator: type[MPIJobOperator] = MPIJobOperator, **given: Any) -> MPIJobOperator:
    return operator(task_id="alone", image="i", **{"workers": 2, **given})


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"command": ["python", "train.py"]}, "command"),
        ({"command": ["/opt/bin/train", "{{ ds }}"]}, "command"),
        (
            {
                "workers": None,
                "command": ["mpirun", "train"],
                "launcher": Replica(command=["python", "a.py"]),
                "worker": Replica(count=2),
            },
            "launcher.command",
        ),
    ],
)
def test_an_mpi_job_that_trains_on_its_launcher_alone_is_warned_about(
    given: dict[str, Any], field: str
) -> None:
    with pytest.warns(
        UserWarning, match=rf"^alone: {field} starts neither mpirun, mpiexec, .* Add"
    ):
        mpi_job(**given)


@pytest.mark.parametrize(
    "given",
    [
        {"command": ["mpirun", "python", "train.py"]},
        {"command": ["/opt/openmpi/bin/mpiexec.hydra", "train"]},
        {"command": ["timeout", "60", "horovodrun", "python", "train.py"]},
        {"command": ["/bin/bash", "-c", "start"]},
        {"command": ["{{ params.starter }}", "train"]},
        {"command": "{{ params.command }}"},
        {"command": ["python", "train.py"], "mpirun": Mpirun()},
        {"args": ["train"]},
        {"workers": None, "worker": Replica(count=2), "launcher": Replica(command=["mpirun", "a"])},
        {"command": ["python", "train.py"], "operator": HorovodJobOperator},
    ],
    ids=str,
)
def test_a_command_that_starts_ranks_or_is_not_known_is_not(given: dict[str, Any]) -> None:
    mpi_job(**given)  # a warning would be an error here


def test_a_field_that_no_operator_has_is_refused() -> None:
    with pytest.raises(InvalidSpec, match="wrokers: not a parameter of .* Did you mean 'workers'"):
        PyTorchJobOperator(task_id="t", image="i", workers=1, wrokers=2)


def test_what_was_given_is_kept_as_it_is() -> None:
    given: dict[str, Any] = {
        "image": "{{ ds }}",
        "command": ["python", "train.py"],
        "env": {"A": "b", "TOKEN": FromSecret("s", "k")},
        "worker": Replica(count="{{ params.n }}"),
        "pod": Pod(volumes=[k8s.V1Volume(name="data")]),
        "lifecycle": Lifecycle(skip_on_exit_code=[3]),
    }
    operator = PyTorchJobOperator(task_id="t", **given)
    for name, value in given.items():
        assert getattr(operator, name) is value


def test_deferring_is_the_configurations_choice_where_nobody_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for said in (True, False):
        monkeypatch.setenv("AIRFLOW__OPERATORS__DEFAULT_DEFERRABLE", str(said))
        assert PyTorchJobOperator(task_id="t", image="i", workers=1).deferrable is said
        assert TrainingJobSensor(task_id="t", kind="TFJob", name="a").deferrable is said
    operator = PyTorchJobOperator(task_id="t", image="i", workers=1, deferrable=True)
    assert operator.deferrable is True


# Templates


def test_templates_are_rendered_wherever_they_are() -> None:
    operator = PyTorchJobOperator(
        task_id="t",
        image="img:{{ ds }}",
        command=["python", "--day", "{{ ds }}"],
        env={"DAY": "{{ ds }}"},
        container_resources=Resources(memory="{{ params.memory }}"),
        pod=Pod(labels={"day": "{{ ds }}"}),
        master=Replica(args=["{{ ds }}"]),
        worker=Replica(count="{{ params.n }}"),
        namespace="ml-{{ ds }}",
        links=Links(dashboard="https://x/{{ ds }}/{job}"),
        lifecycle=Lifecycle(skip_on_exit_code="{{ params.n }}"),
    )
    manifest = manifest_of(rendered(operator))
    groups = manifest["spec"]["pytorchReplicaSpecs"]
    assert groups["Worker"]["replicas"] == 3
    assert groups["Master"]["template"]["spec"]["containers"][0]["args"] == ["2026-11-21"]
    (container,) = groups["Worker"]["template"]["spec"]["containers"]
    assert container["image"] == "img:2026-11-21"
    assert container["command"] == ["python", "--day", "2026-11-21"]
    assert container["env"] == [{"name": "DAY", "value": "2026-11-21"}]
    assert container["resources"]["limits"]["memory"] == "2Gi"
    assert groups["Worker"]["template"]["metadata"]["labels"]["day"] == "2026-11-21"
    assert operator.namespace == "ml-2026-11-21"
    assert operator.links.dashboard == "https://x/2026-11-21/{job}"
    assert operator._settings().lifecycle.skip_on_exit_code == (3,)


def test_model_objects_are_rendered_in_a_copy() -> None:
    shared = k8s.V1EnvVar(name="DAY", value="{{ ds }}")
    side = k8s.V1Container(name="side", image="s:{{ ds }}", env=[shared], args=["{{ ds }}"])
    operator = PyTorchJobOperator(
        task_id="t", image="i", workers=0, env=[shared], pod=Pod(sidecars=[side])
    )
    manifest = manifest_of(rendered(operator))
    pod = manifest["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]
    assert pod["containers"][0]["env"] == [{"name": "DAY", "value": "2026-11-21"}]
    assert pod["containers"][1]["image"] == "s:2026-11-21"
    assert pod["containers"][1]["args"] == ["2026-11-21"]
    assert pod["containers"][1]["env"] == [{"name": "DAY", "value": "2026-11-21"}]
    assert (shared.value, side.image) == ("{{ ds }}", "s:{{ ds }}")


def test_a_command_that_ends_like_a_file_is_a_command() -> None:
    operator = rendered(
        PyTorchJobOperator(task_id="t", image="i", workers=0, command=["run", "job.yaml"])
    )
    operator.resolve_template_files()
    assert operator.command == ["run", "job.yaml"]


def test_xcoms_within_nouns_make_their_tasks_go_first() -> None:
    @task
    def plan() -> dict[str, Any]:
        return {"count": 2}

    with DAG("d", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=timezone.utc)):
        planned = plan()
        train = PyTorchJobOperator(
            task_id="train",
            image="i",
            worker=Replica(count=planned["count"], pod=Pod(labels={"a": planned["label"]})),
        )
        raw = TrainingJobOperator(task_id="raw", manifest=planned)
    assert train.upstream_task_ids == raw.upstream_task_ids == {"plan"}


# Mapped tasks


class _Instance:
    """Replaces Airflow's task instance."""

    id = run_id = task_id = dag_id = "x"
    try_number = max_tries = 1
    start_date = None
    task: Any = None

    def __init__(self, map_index: int) -> None:
        self.map_index = map_index


class _Run:
    conf: dict[str, Any] = {}


def unmapping(mapped: Any, map_index: int) -> Any:
    """The context of one of many mapped tasks, whose operator is created and rendered as Airflow
    does it."""
    context = {**CONTEXT, "ti": _Instance(map_index), "dag": mapped.dag, "dag_run": _Run()}
    mapped.render_template_fields(context)
    return context


def test_nouns_may_stand_in_partial_and_in_expand() -> None:
    @task
    def images() -> list[str]:
        return ["a", "b"]

    start = datetime(2026, 1, 1, tzinfo=timezone.utc)
    with DAG("d", schedule=None, start_date=start, params={"n": 3}):
        mapped = PyTorchJobOperator.partial(
            task_id="train", image="i", pod=Pod(labels={"day": "{{ ds }}"})
        ).expand(worker=[Replica(count=1), Replica(count="{{ params.n }}")])
        over = PyTorchJobOperator.partial(task_id="over", workers=1).expand(image=images())
    assert over.upstream_task_ids == {"images"}

    context = unmapping(mapped, 1)
    (_, worker) = manifest_of(context["task"])["spec"]["pytorchReplicaSpecs"].values()
    assert worker["replicas"] == 3
    assert worker["template"]["metadata"]["labels"]["day"] == "2026-11-21"


def test_what_is_wrong_with_one_of_many_is_said_when_it_runs_and_not_tried_again() -> None:
    with DAG("d", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=timezone.utc)):
        mapped = PyTorchJobOperator.partial(task_id="train", image="i").expand(workers=[-1])

    context = unmapping(mapped, 0)
    known = exceptions()
    with (
        pytest.raises(known.AirflowFailException, match="workers: must be at least 0"),
        as_airflow_says(),
    ):
        context["task"]._execute(context)


# Manifests in files


@pytest.fixture
def in_a_folder(tmp_path: Path) -> Callable[..., TrainingJobOperator]:
    """An operator of a DAG whose file is in a folder with these files."""
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "job.yaml").write_text(BATCH_JOB)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "other.yml").write_text(BATCH_JOB)

    def make(manifest: str, **more: Any) -> TrainingJobOperator:
        start = datetime(2026, 1, 1, tzinfo=timezone.utc)
        dag = DAG(
            "d",
            schedule=None,
            start_date=start,
            template_searchpath=[str(tmp_path / "elsewhere")],
        )
        dag.fileloc = str(tmp_path / "dag.py")
        path = manifest.format(folder=tmp_path)
        return TrainingJobOperator(task_id="t", manifest=path, dag=dag, **more)

    return make


@pytest.mark.parametrize("path", ["jobs/job.yaml", "other.yml", "{folder}/jobs/job.yaml"])
def test_a_file_is_found_as_a_template_is_and_rendered(
    in_a_folder: Callable[..., TrainingJobOperator], path: str
) -> None:
    operator = rendered(in_a_folder(path))
    operator.read_files(dict(CONTEXT))
    spec = manifest_of(operator)["spec"]
    assert spec["parallelism"] == 3
    assert spec["template"]["spec"]["containers"][0]["image"] == "img:2026-11-21"


def test_the_path_of_a_file_may_be_a_template(
    in_a_folder: Callable[..., TrainingJobOperator],
) -> None:
    operator = rendered(in_a_folder("{{{{ 'jobs' }}}}/job.yaml"))
    operator.read_files(dict(CONTEXT))
    assert manifest_of(operator)["kind"] == "Job"


def test_a_file_that_is_not_there_is_named(
    in_a_folder: Callable[..., TrainingJobOperator],
) -> None:
    operator = rendered(in_a_folder("jobs/none.yaml"))
    with pytest.raises(InvalidSpec, match=r"manifest: there is no such file, got 'jobs/none.yaml'"):
        operator.read_files(dict(CONTEXT))


# Output


@each
def test_a_dry_run_prints_the_manifest(
    make: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    rendered(make(task_id="t", namespace="ml")).dry_run()
    printed = yaml.safe_load(capsys.readouterr().out)
    assert printed["metadata"]["namespace"] == "ml"
    assert printed["spec"]


def test_secrets_are_not_printed(capsys: pytest.CaptureFixture[str]) -> None:
    env = {"WANDB_API_KEY": "hunter2", "EPOCHS": 3, "TOKEN": FromSecret("wandb", "key")}
    PyTorchJobOperator(task_id="t", image="i", workers=0, env=env).dry_run()
    printed = capsys.readouterr().out
    assert "hunter2" not in printed
    (container,) = yaml.safe_load(printed)["spec"]["pytorchReplicaSpecs"]["Master"]["template"][
        "spec"
    ]["containers"]
    assert container["env"][0] == {"name": "WANDB_API_KEY", "value": "***"}
    assert container["env"][1] == {"name": "EPOCHS", "value": "3"}


def test_what_airflow_knows_to_be_secret_is_not_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """However deep it is, and whatever the variable is called."""
    mask_secret("of-a-connection")
    env = {"DATABASE": "postgres://of-a-connection@db"}
    PyTorchJobOperator(task_id="t", image="i", workers=0, env=env).dry_run()
    printed = capsys.readouterr().out
    assert "of-a-connection" not in printed
    assert "postgres://***@db" in printed


# Errors as Airflow's exceptions


@pytest.mark.parametrize(
    ("error", "retried"),
    [
        (InvalidSpec("workers", "are too many"), False),
        (errors.BadConnection("create it", "no such connection"), False),
        (errors.Refused("create it", "a webhook says no"), False),
        (errors.Forbidden("create it", "a right is missing"), False),
        (errors.NotServed("create it", "no such kind"), False),
        (errors.NotFound("create it", "no such namespace"), True),
        (errors.Unreachable("create it", "nobody answers"), True),
        (errors.Unauthorized("create it", "who are you?"), True),
        (errors.Conflict("create it", "it is there"), True),
        (errors.ClusterError("create it", "503"), True),
    ],
)
def test_what_no_retry_mends_is_not_tried_again(error: Exception, retried: bool) -> None:
    known = exceptions()
    with pytest.raises(known.AirflowException) as caught, as_airflow_says():
        raise error
    assert isinstance(caught.value, known.AirflowFailException) is not retried
    assert str(caught.value) == str(error)
    assert caught.value.__cause__ is error


# The cost of an import


def test_operators_bring_no_kubernetes_client_along() -> None:
    program = """
import sys, airflow.sdk
before = set(sys.modules)
import airflow_kftrain
[getattr(airflow_kftrain, name) for name in airflow_kftrain.__all__]
airflow_kftrain.PyTorchJobOperator(task_id="t", image="i", workers=2)
heavy = ("kubernetes", "kubernetes_asyncio", "aiohttp", "airflow.providers.cncf")
print([name for name in set(sys.modules) - before
       if any(name == each or name.startswith(each + ".") for each in heavy)])
"""
    ran = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ}, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip().splitlines()[-1] == "[]"


# Horovod and elastic jobs, since they have their own nouns


def test_all_nouns_can_be_given() -> None:
    HorovodJobOperator(
        task_id="t",
        image="i",
        command=["a"],
        launcher=Replica(),
        worker=Replica(count=2),
        horovod=Horovod(min_np=1),
    )
    PyTorchJobOperator(task_id="t", image="i", command=["a.py"], elastic=Elastic(nodes="1:2"))
