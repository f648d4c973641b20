"""Operators"""

from __future__ import annotations

import json
import os
import re
import signal
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk._shared.secrets_masker import reset_secrets_masker

from airflow_kftrain import Lifecycle, Links, Logs, Pod, Replica, TrainJobOperator
from airflow_kftrain.airflow_compat import accessors, exceptions
from airflow_kftrain.hooks.training_job import TrainingJobHook
from airflow_kftrain.manifests.identity import IDENTITY_LABEL, OWNER_ANNOTATION
from airflow_kftrain.operators.training_job import BaseTrainingJobOperator
from airflow_kftrain.ownership import read_claim
from airflow_kftrain.triggers.training_job import TrainingJobTrigger
from airflow_kftrain.watching import logs
from kftrain_local.faults.command import Fault, FaultProxy, running
from tests.cluster.jobs import until_a_file
from tests.cluster.operated import (
    PYTORCH,
    Instance,
    Operated,
    airflow_says,
    deferring,
    event_of,
    execute,
    operator,
    resume,
)
from tests.cluster.v1 import FOR_EVER
from tests.cluster.world import World, eventually
from tests.control_plane.api import MERGE

RESULT = "echo '{\"loss\": 0.5}' > $KFTRAIN_RESULT_FILE"
FAILS = "echo no such file; exit 3"
ERRORS = exceptions()
QUICK = Pod(patch={"spec": {"terminationGracePeriodSeconds": 1}})
NOWHERE = """
apiVersion: v1
kind: Config
current-context: c
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u, user: {}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
"""


@pytest.fixture
def operated(world: World, monkeypatch: pytest.MonkeyPatch) -> Operated:
    return Operated(world, monkeypatch)


def deferred(task: BaseTrainingJobOperator, instance: Instance) -> Any:
    """The whole way: worker, trigger, another worker."""
    waits = deferring(task, instance)
    event = event_of(waits)
    return resume(task, instance, waits.method_name, {**waits.kwargs, "event": event})


def rendered(task: BaseTrainingJobOperator) -> None:
    """As the worker does it, which reads variables at that moment."""
    context: Any = accessors()
    task.render_template_fields(context)


modes = pytest.mark.parametrize("run", [execute, deferred], ids=["waiting", "deferred"])
Run = Callable[[BaseTrainingJobOperator, Instance], Any]


@modes
def test_a_success_returns_what_the_leader_left(operated: Operated, run: Run) -> None:
    assert run(operator(RESULT), Instance()) == {"loss": 0.5}
    eventually(lambda: operated.jobs() == [], operated.jobs)


@modes
def test_a_failure_says_why_and_stays_to_be_looked_at(
    operated: Operated, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ERRORS.AirflowException) as caught:
        run(operator(FAILS), Instance())
    assert type(caught.value) is ERRORS.AirflowException
    headline = "The PyTorchJob failed: exit code 3 in master-0. Look at its log."
    assert str(caught.value) == f"{headline} See the report above."
    told = capsys.readouterr().out
    assert told.count(headline) == 1
    # In the manifest, in the log if the worker follows it, and in the report.
    assert told.count("no such file") == (3 if run is execute else 2)
    assert read_claim(operated.job()).delivered


def test_both_modes_report_the_same(operated: Operated, capsys: pytest.CaptureFixture[str]) -> None:
    reports = []
    for run in (execute, deferred):
        with pytest.raises(ERRORS.AirflowException):
            run(operator(FAILS, lifecycle=Lifecycle(on_finish="delete")), Instance())
        eventually(lambda: operated.jobs() == [], operated.jobs)
        told = capsys.readouterr().out
        report = told[told.index("The PyTorchJob failed") :].partition("Retry:")[0]
        reports.append(_comparable(report))
    assert reports[0] == reports[1]


def _comparable(report: str) -> list[str]:
    """Without what differs from job to job, and without events, which Kubernetes writes at any
    time."""
    text = re.sub(r"dag-train-[0-9a-f]{10}", "NAME", report)
    text = re.sub(r"20\d\d-\S+ \S+ UTC", "TIME", text)
    return re.sub(r"(?m)^Events:\n(  .*\n)*", "", text).splitlines()


@pytest.mark.parametrize("shows", ["leader", "off"])
def test_secrets_that_the_worker_read_are_masked_while_the_task_is_deferred(
    operated: Operated, monkeypatch: pytest.MonkeyPatch, shows: str
) -> None:
    """A variable in a value, as a whole value, and in an argument; a key of several lines. Shown
    meanwhile, or at the end, where the report quotes the last lines."""
    secret, key = "hunter2-is-long", "-- BEGIN --\nabcdefgh\n-- END --"
    monkeypatch.setenv("AIRFLOW_VAR_TRAIN_PASSWORD", secret)
    monkeypatch.setenv("AIRFLOW_VAR_TRAIN_API_KEY", key)
    monkeypatch.setattr(logs, "SLICE_SECONDS", 1.0)
    lines: list[str] = []
    monkeypatch.setattr(TrainingJobTrigger, "_tell", lambda _, line: lines.append(line))
    task = operator(
        'f() { echo db $DB; echo tok $TOK; echo key "$KEY"; '
        'echo long $(printf %290s | tr " " x) $TOK; echo arg {{ var.value.train_password }}; }; '
        "f; sleep 5; f; f; f; exit 3",
        env={
            "DB": "postgres://u:{{ var.value.train_password }}@db",
            "TOK": "{{ var.value.train_password }}",
            "KEY": "{{ var.value.train_api_key }}",
        },
        logs=Logs(deferred=shows),
    )
    rendered(task)
    waits = deferring(task, Instance())
    reset_secrets_masker()  # the triggerer is another process
    event = event_of(waits)
    text = json.dumps([lines, event, waits.kwargs])
    for part in (secret, secret[:8], *key.splitlines()):
        assert part not in text
    shown = "\n".join(lines) if shows == "leader" else event["tail"]
    for part in ("db postgres://u:***@db", "tok ***", "key ***", "arg ***"):
        assert f"{part}\n" in shown
        assert part in event["report"]


@pytest.mark.parametrize("masked", [True, False])
def test_a_job_is_read_once_more_only_where_the_worker_masked_something(
    operated: Operated, monkeypatch: pytest.MonkeyPatch, masked: bool
) -> None:
    monkeypatch.setenv("AIRFLOW_VAR_TRAIN_PASSWORD", "hunter2-is-long")
    env = {"TOK": "{{ var.value.train_password }}"} if masked else {}
    task = operator(FAILS, env=env)
    rendered(task)
    with running(FaultProxy(operated.world.target.kubeconfig)) as proxy:
        operated.connect(str(proxy.kubeconfig), monkeypatch)
        waits = deferring(task, Instance())
        before = proxy.calls["get", "pytorchjobs"]
        event_of(waits)
        assert proxy.calls["get", "pytorchjobs"] - before == (1 if masked else 0)


def test_what_pods_wrote_is_left_out_where_secrets_cannot_be_found(
    operated: Operated, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_VAR_TRAIN_PASSWORD", "hunter2-is-long")
    task = operator("echo tok $TOK; exit 3", env={"TOK": "{{ var.value.train_password }}"})
    rendered(task)
    with running(FaultProxy(operated.world.target.kubeconfig)) as proxy:
        operated.connect(str(proxy.kubeconfig), monkeypatch)
        waits = deferring(task, Instance())
        proxy.add(Fault(verb="get", resource="pytorchjobs", code=403))
        event = event_of(waits)
    assert "exit code 3" in event["report"]
    assert "The output of pods is omitted" in event["report"]
    assert "tok" not in json.dumps(event)


@modes
def test_an_exit_code_can_skip_the_task(operated: Operated, run: Run) -> None:
    with pytest.raises(ERRORS.AirflowSkipException, match="exit code 3"):
        run(operator(FAILS, lifecycle=Lifecycle(skip_on_exit_code=[3, 4])), Instance())


def test_a_result_that_is_cut_fails_the_task_and_keeps_the_job(operated: Operated) -> None:
    script = "printf '[%4200s]' 1 > $KFTRAIN_RESULT_FILE"
    with pytest.raises(ERRORS.AirflowFailException, match="Kubernetes keeps 4096 bytes"):
        execute(operator(script), Instance())
    assert read_claim(operated.job()).delivered


def test_plain_text_in_the_place_of_a_result_is_no_value(
    operated: Operated, capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(operator("echo done > $KFTRAIN_RESULT_FILE"), Instance()) is None
    assert "The result that the training wrote" in capsys.readouterr().out


def test_a_task_that_does_not_wait_leaves_a_job_that_nobody_sweeps(operated: Operated) -> None:
    instance = Instance()
    assert execute(operator(FOR_EVER, wait_for_completion=False), instance) is None
    claim = read_claim(operated.job())
    assert claim.unattended
    assert instance.xcoms["job"] == {
        "api_version": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "namespace": operated.world.namespace,
        "name": claim.name,
        "uid": claim.uid,
        "cluster": TrainingJobHook("kubernetes_default").cluster(),
    }


# Tries after a try


def test_a_retry_goes_on_with_the_job_of_a_lost_worker(operated: Operated, tmp_path: Path) -> None:
    go = tmp_path / "go"
    script = f"{until_a_file(go)}; {RESULT}"
    lost = Instance(retries=1)
    deferring(operator(script, retries=1), lost)
    (before,) = operated.jobs()
    retry = Instance(before=lost)
    waits = deferring(operator(script, retries=1), retry)
    (job,) = operated.jobs()
    assert job["metadata"]["uid"] == before["metadata"]["uid"]
    claim = read_claim(job)
    assert (claim.owner.ti_id, claim.owner.try_number) == (retry.id, 2)
    go.touch()
    event = event_of(waits)
    task = operator(script)
    assert resume(task, retry, waits.method_name, {**waits.kwargs, "event": event}) == {"loss": 0.5}


def test_a_success_that_nobody_was_told_is_not_trained_again(operated: Operated) -> None:
    lost = Instance(retries=1)
    deferring(operator(RESULT, retries=1), lost)
    before = operated.ended()
    kept = Lifecycle(on_finish="keep")
    retry = Instance(before=lost)
    assert execute(operator(RESULT, retries=1, lifecycle=kept), retry) == {"loss": 0.5}
    assert operated.job()["metadata"]["uid"] == before["metadata"]["uid"]
    # Its end was reported now, so a later try trains.
    assert execute(operator(RESULT, retries=1, lifecycle=kept), Instance(before=retry)) == {
        "loss": 0.5
    }
    assert len(operated.jobs()) == 2


def test_a_job_that_is_over_is_not_deferred_for(operated: Operated) -> None:
    lost = Instance(retries=1)
    deferring(operator(RESULT, retries=1), lost)
    operated.ended()
    retry = operator(RESULT, retries=1, deferrable=True)
    assert execute(retry, Instance(before=lost)) == {"loss": 0.5}
    eventually(lambda: operated.jobs() == [], operated.jobs)


def test_the_same_try_finds_its_own_job(operated: Operated) -> None:
    """As if a worker dies between the response and the deferral, and Airflow starts it again."""
    instance = Instance()
    deferring(operator(FOR_EVER), instance)
    deferring(operator(FOR_EVER), instance)
    assert len(operated.jobs()) == 1


def test_a_retry_after_a_failure_trains_anew_and_leaves_the_failed_job(operated: Operated) -> None:
    first = Instance(retries=1)
    with pytest.raises(ERRORS.AirflowException):
        execute(operator(FAILS, retries=1), first)
    with pytest.raises(ERRORS.AirflowException):
        execute(operator(FAILS, retries=1), Instance(before=first))
    assert len(operated.jobs()) == 2


def test_what_asks_for_something_else_replaces_a_job_that_runs(operated: Operated) -> None:
    lost = Instance(retries=1)
    deferring(operator(FOR_EVER, retries=1), lost)
    before = operated.runs()
    assert execute(operator(RESULT, retries=1), Instance(before=lost)) == {"loss": 0.5}
    eventually(lambda: operated.jobs() == [], operated.jobs)
    assert before["metadata"]["name"] not in operated.world.names("PyTorchJob", "kubeflow.org/v1")


@pytest.mark.parametrize("why", ["cleared", "reattach"])
def test_a_clear_and_reattach_false_start_anew(operated: Operated, why: str) -> None:
    lost = Instance()
    deferring(operator(FOR_EVER), lost)
    before = operated.runs()
    after = Instance(before=lost)
    after.max_tries = 1 if why == "cleared" else 0
    deferring(operator(FOR_EVER, lifecycle=Lifecycle(reattach=why != "reattach")), after)
    assert operated.job()["metadata"]["uid"] != before["metadata"]["uid"]


def test_a_retry_that_waits_looks_after_a_job_that_was_not_waited_for(operated: Operated) -> None:
    lost = Instance(retries=1)
    execute(operator(FOR_EVER, wait_for_completion=False, retries=1), lost)
    retry = Instance(before=lost)
    deferring(operator(FOR_EVER, retries=1), retry)
    claim = read_claim(operated.job())
    assert (claim.owner.ti_id, claim.unattended) == (retry.id, False)


@pytest.mark.parametrize("asks_for", ["the same", "something else"])
def test_a_try_that_comes_late_leaves_the_job_of_a_newer_one(
    operated: Operated, asks_for: str
) -> None:
    """Its worker was frozen, and Airflow has started the next try."""
    frozen = Instance(retries=1)
    frozen.start_date -= timedelta(minutes=1)
    newer = Instance(before=frozen)
    deferring(operator(FOR_EVER, retries=1), newer)
    before = operated.runs()
    script = FOR_EVER if asks_for == "the same" else f"echo new; {FOR_EVER}"
    with pytest.raises(ERRORS.AirflowException, match="try 2 of the task has started"):
        execute(operator(script, retries=1), frozen)
    assert operated.job() == before


def test_an_event_that_comes_late_leaves_the_job_to_the_try_that_took_it_over(
    operated: Operated,
) -> None:
    late = Instance(retries=1)
    waits = deferring(operator(RESULT, retries=1), late)
    event = event_of(waits)
    kept = Lifecycle(on_finish="keep")
    operated.ended()
    path = operated.world.path("PyTorchJob", operated.job()["metadata"]["name"], PYTORCH[1])
    taken = {"metadata": {"annotations": {OWNER_ANNOTATION: "of a retry"}}}
    operated.world.api.call("PATCH", path, taken, content_type=MERGE).required("a patch")
    for lifecycle in (kept, Lifecycle(on_finish="delete")):
        task = operator(RESULT, retries=1, lifecycle=lifecycle)
        resume(task, late, waits.method_name, {**waits.kwargs, "event": event})
        claim = read_claim(operated.job())
        assert (claim.delivered, claim.terminating) == (False, False)


def test_what_is_left_of_a_deleted_run_is_no_newer_try(operated: Operated) -> None:
    of_before = Instance(before=Instance(retries=1))
    deferring(operator(FOR_EVER, retries=1), of_before)
    deferring(operator(FOR_EVER, retries=1), again := Instance(retries=1))
    assert read_claim(operated.job()).owner.ti_id == again.id


def test_a_train_job_is_replaced_when_its_pods_are_gone(operated: Operated) -> None:
    """Deleting it in the foreground would start the training again and again."""

    def train_job(script: str) -> TrainJobOperator:
        command = ["sh", "-c", script]
        return TrainJobOperator(
            task_id="train", runtime="torch-distributed", image="x", command=command
        )

    lost = Instance()
    deferring(train_job(FOR_EVER), lost)
    before = lost.xcoms["job"]
    eventually(lambda: operated.world.names("Pod"))
    deferring(train_job(f"echo anew; {FOR_EVER}"), Instance(before=lost))
    assert not [name for name in operated.world.names("Pod") if name.startswith(before["name"])]


def test_a_job_that_only_has_our_label_is_left_alone(operated: Operated) -> None:
    """As if somebody copies a job to try something, and removes the annotations."""
    lost = Instance()
    deferring(operator(FOR_EVER), lost)
    path = operated.world.path("PyTorchJob", operated.job()["metadata"]["name"], "kubeflow.org/v1")
    patch = {"metadata": {"annotations": {"airflow-kftrain/task-id": "another"}}}
    operated.world.api.call("PATCH", path, patch, content_type=MERGE).required("a patch")
    before = operated.job()["metadata"]["uid"]
    deferring(operator(f"echo new; {FOR_EVER}"), Instance(before=lost))
    assert before in [job["metadata"]["uid"] for job in operated.jobs()]
    assert len(operated.jobs()) == 2


def test_nobody_elses_job_is_touched(operated: Operated) -> None:
    others = Instance()
    others.task_id = "other"
    deferring(operator(FOR_EVER, task_id="other"), others)
    before = operated.runs()
    assert execute(operator(RESULT), Instance()) == {"loss": 0.5}
    eventually(lambda: len(operated.jobs()) == 1, operated.jobs)
    assert operated.job() == before


# Ends from outside


def _killed(operated: Operated, task: BaseTrainingJobOperator, instance: Instance) -> str:
    """As Airflow does it: a signal in the middle of execute, whose handler calls on_kill."""
    former = signal.signal(signal.SIGTERM, lambda *_: task.on_kill())

    def kill() -> None:
        operated.runs()
        os.kill(os.getpid(), signal.SIGTERM)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        with pytest.raises(ERRORS.AirflowException) as caught:
            execute(task, instance)
    finally:
        killer.join()
        signal.signal(signal.SIGTERM, former)
    return str(caught.value)


# If it is ended while its Kubernetes client is created, the library that opens the kubeconfig, in a
# thread, leaves the file to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("state", "retries", "is_left"),
    [
        ("running", 1, True),
        ("running", 0, False),
        ("failed", 1, False),
        ("restarting", 1, False),
        (None, 1, True),
        (None, 0, False),
    ],
)
def test_a_worker_that_is_ended_leaves_its_job_only_to_a_retry(
    operated: Operated,
    monkeypatch: pytest.MonkeyPatch,
    state: str | None,
    retries: int,
    is_left: bool,
) -> None:
    airflow_says(monkeypatch, state)
    task = operator(FOR_EVER, retries=retries, pod=QUICK)
    _killed(operated, task, Instance(retries=retries))
    if is_left:
        assert not read_claim(operated.job()).terminating
    else:
        eventually(lambda: operated.jobs() == [], operated.jobs)


@pytest.mark.parametrize("retries", [0, 1])
@pytest.mark.parametrize("where", ["the XCom", "the deferral"])
@pytest.mark.parametrize("error", [RuntimeError, ERRORS.AirflowTaskTimeout])
def test_a_task_that_fails_before_it_waits_leaves_its_job_only_to_a_retry(
    operated: Operated,
    monkeypatch: pytest.MonkeyPatch,
    error: type[BaseException],
    where: str,
    retries: int,
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error("Airflow does not answer")

    instance = Instance(retries=retries)
    task = operator(FOR_EVER, retries=retries, pod=QUICK, deferrable=True)
    if where == "the XCom":
        monkeypatch.setattr(instance, "xcom_push", fail)
    else:
        monkeypatch.setattr("airflow_kftrain.triggers.training_job.TrainingJobTrigger", fail)
    with pytest.raises(error):
        execute(task, instance)
    if retries and error is RuntimeError:
        assert not read_claim(operated.job()).terminating
    else:
        eventually(lambda: operated.jobs() == [], operated.jobs)


def test_a_job_whose_creation_nobody_heard_of_is_withdrawn(
    operated: Operated, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_kftrain.hooks.operations.SUBMIT_PATIENCE", 0.0)
    unheard = Fault(verb="create", resource="pytorchjobs", cut=0)
    with running(FaultProxy(operated.world.target.kubeconfig, unheard)) as proxy:
        operated.connect(str(proxy.kubeconfig), monkeypatch)
        with pytest.raises(ERRORS.AirflowException, match="closed without a response"):
            execute(operator(FOR_EVER, pod=QUICK), Instance())
        assert proxy.calls["create", "pytorchjobs"] == 1
        # Once more if the operator writes its status at that very moment.
        assert proxy.calls["delete", "pytorchjobs"] >= 1
    eventually(lambda: operated.jobs() == [], operated.jobs)


def test_a_task_that_was_ended_while_it_submitted_leaves_no_job_that_nobody_waits_for(
    operated: Operated, monkeypatch: pytest.MonkeyPatch
) -> None:
    airflow_says(monkeypatch, "failed")
    task = operator(FOR_EVER, wait_for_completion=False, pod=QUICK)
    task.on_kill()
    with pytest.raises(ERRORS.AirflowException, match="is being stopped"):
        execute(task, Instance())
    eventually(lambda: operated.jobs() == [], operated.jobs)


@modes
def test_the_execution_timeout_ends_the_job_with_a_report(
    operated: Operated, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    task = operator(f"echo epoch 1; {FOR_EVER}", execution_timeout=timedelta(seconds=6), pod=QUICK)
    with pytest.raises(ERRORS.AirflowTaskTimeout, match="execution timeout"):
        run(task, Instance())
    assert "] epoch 1 " in capsys.readouterr().out
    eventually(lambda: operated.jobs() == [], operated.jobs)


TOO_LONG = {"error": "Trigger timeout"}


def test_a_deferral_that_takes_too_long_ends_the_job(operated: Operated) -> None:
    instance = Instance()
    deferring(operator(FOR_EVER, pod=QUICK), instance)
    operated.runs()
    with pytest.raises(ERRORS.TaskDeferralTimeout, match="The PyTorchJob was unfinished") as caught:
        resume(operator(FOR_EVER, pod=QUICK), instance, "__fail__", TOO_LONG)
    assert "PyTorchJob" in str(caught.value)
    eventually(lambda: operated.jobs() == [], operated.jobs)


def test_a_job_that_ended_while_nobody_listened_is_no_timeout(operated: Operated) -> None:
    instance = Instance()
    deferring(operator(RESULT), instance)
    operated.ended()
    assert resume(operator(RESULT), instance, "__fail__", TOO_LONG) == {"loss": 0.5}


@pytest.mark.parametrize("retries", [0, 1])
def test_a_trigger_that_fails_leaves_the_job_only_to_a_retry(
    operated: Operated, retries: int
) -> None:
    instance = Instance(retries=retries)
    deferring(operator(FOR_EVER, retries=retries, pod=QUICK), instance)
    operated.runs()
    task = operator(FOR_EVER, retries=retries, pod=QUICK)
    with pytest.raises(ERRORS.TaskDeferralError):
        resume(task, instance, "__fail__", {"error": "Trigger failure", "traceback": ["a", "b"]})
    if retries:
        assert not read_claim(operated.job()).terminating
    else:
        eventually(lambda: operated.jobs() == [], operated.jobs)


def test_a_verdict_is_not_hidden_by_a_cluster_that_is_away(
    operated: Operated, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    instance = Instance()
    waits = deferring(operator(FAILS), instance)
    event = event_of(waits)
    nowhere = tmp_path / "kubeconfig"
    nowhere.write_text(NOWHERE)
    operated.connect(str(nowhere), monkeypatch)
    monkeypatch.setattr("airflow_kftrain.hooks.operations.PATIENCE", 1.0)
    with pytest.raises(ERRORS.AirflowException, match="exit code 3"):
        resume(operator(FAILS), instance, waits.method_name, {**waits.kwargs, "event": event})


def test_an_event_that_nobody_can_read_fails_the_task(operated: Operated) -> None:
    instance = Instance(retries=1)
    waits = deferring(operator(FOR_EVER, retries=1), instance)
    for event in (None, {}, {"verdict": "from the future"}, "text"):
        with pytest.raises(ERRORS.AirflowException, match="cannot be read"):
            resume(
                operator(FOR_EVER, retries=1),
                instance,
                waits.method_name,
                {**waits.kwargs, "event": event, "of_the_future": 1},
            )
    assert not read_claim(operated.job()).terminating


def test_a_missing_namespace_is_told_by_its_name(operated: Operated) -> None:
    with pytest.raises(ERRORS.AirflowException, match="no-such-namespace"):
        execute(operator(namespace="no-such-namespace"), Instance())


# Links


def test_a_link_that_leads_nowhere_is_stored_empty(operated: Operated) -> None:
    """Airflow reads it at the end of each worker, and logs an error if it finds nothing."""
    instance = Instance()
    execute(operator(links=Links(worker_logs="https://x/{role}/{index}")), instance)
    assert instance.xcoms["_link_WorkerLogsLink"] == ""


@modes
def test_a_link_may_name_the_task_the_node_and_the_container(operated: Operated, run: Run) -> None:
    links = Links(
        leader_logs="https://x/{node}/{container_id}",
        dashboard="https://x/{dag_id}/{task_id}/{run_id}/{map_index}/{try_number}/{identity}",
    )
    instance = Instance(before=Instance())
    run(operator(links=links, lifecycle=Lifecycle(on_finish="keep")), instance)
    identity = operated.job()["metadata"]["labels"][IDENTITY_LABEL]
    assert instance.xcoms["_link_DashboardLink"] == f"https://x/dag/train/run/-1/2/{identity}"
    (pod,) = operated.world.listed("Pod", "v1")
    (status,) = pod["status"]["containerStatuses"]
    place = f"{pod['spec']['nodeName']}/{status['containerID'].partition('://')[2]}"
    assert instance.xcoms["_link_LeaderLogsLink"] == f"https://x/{place}"


@modes
def test_links_are_stored_as_soon_as_they_are_known(operated: Operated, run: Run) -> None:
    links = Links(
        training_job="https://x/{namespace}/{job}",
        leader_logs="https://x/{pod}/{container}",
        worker_logs="https://x/{role}/{index}?{start}-{finish}",
        dashboard="",
    )
    instance = Instance()
    task = operator(workers=None, master=Replica(), worker=Replica(count=2), links=links)
    run(task, instance)
    name = instance.xcoms["job"]["name"]
    assert instance.xcoms["_link_TrainingJobLink"] == f"https://x/{operated.world.namespace}/{name}"
    assert instance.xcoms["_link_LeaderLogsLink"] == f"https://x/{name}-master-0/pytorch"
    assert instance.xcoms["_link_WorkerLogsLink"].startswith("https://x/worker/0?")
    assert "_link_DashboardLink" not in instance.xcoms
    assert [(row["role"], row["index"], row["pod"]) for row in instance.xcoms["log_links"]] == [
        ("master", 0, f"{name}-master-0"),
        ("worker", 0, f"{name}-worker-0"),
        ("worker", 1, f"{name}-worker-1"),
    ]
