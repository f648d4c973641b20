"""The parameters of Airflow's own operators for Kubernetes: each that is not ours is answered.

What the libraries of others have stands in the same table; they are not installed here.
"""

from __future__ import annotations

import inspect
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from airflow.sdk import DAG, BaseOperator, task

import airflow_kftrain
from airflow_kftrain import (
    Elastic,
    HorovodJobOperator,
    InvalidSpec,
    MPIJobOperator,
    PyTorchJobOperator,
    Replica,
    RunPolicy,
    TFJobOperator,
    TrainingJobOperator,
    TrainingJobSensor,
    TrainJobOperator,
    airflow_compat,
)
from airflow_kftrain.decorators import pytorch
from airflow_kftrain.operators.parameters import parameters_of
from airflow_kftrain.specs.foreign_names import KUBERNETES, WORLDS

OPERATORS: dict[str, Callable[..., Any]] = {
    "PyTorchJobOperator": lambda **more: PyTorchJobOperator(image="i", workers=1, **more),
    "TFJobOperator": lambda **more: TFJobOperator(image="i", workers=1, **more),
    "MPIJobOperator": lambda **more: MPIJobOperator(image="i", workers=1, **more),
    "HorovodJobOperator": lambda **more: HorovodJobOperator(
        image="i", command=["a"], workers=1, **more
    ),
    "TrainJobOperator": lambda **more: TrainJobOperator(runtime="torch", **more),
    "TrainingJobOperator": lambda **more: TrainingJobOperator(manifest="job.yaml", **more),
    "TrainingJobSensor": lambda **more: TrainingJobSensor(kind="PyTorchJob", name="job", **more),
}
SECRET = "hunter2"
NO_EQUIVALENT = {name for world in WORLDS for name in world.without} - {
    name for world in WORLDS for name in world.instead
}
OF_AIRFLOW = set(inspect.signature(BaseOperator.__init__).parameters)


def foreign(operator: type) -> set[str]:
    init = inspect.unwrap(vars(operator)["__init__"])
    parameters = inspect.signature(init).parameters.values()
    named = {each.name for each in parameters if each.kind is not each.VAR_KEYWORD} - {"self"}
    return named - OF_AIRFLOW


# The oldest supported cncf.kubernetes imports from modules that Airflow 3.1 has moved.
@pytest.mark.filterwarnings("ignore:The `airflow")
def test_all_that_airflows_operators_have_is_in_the_table() -> None:
    from airflow.providers.cncf.kubernetes.operators.job import KubernetesJobOperator
    from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator

    theirs = foreign(KubernetesPodOperator) | foreign(KubernetesJobOperator)
    ours = set(parameters_of(PyTorchJobOperator))
    assert theirs - ours - {*KUBERNETES.instead, *KUBERNETES.without} == set()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (name, words)
        for names, words in (
            ({name for world in WORLDS for name in world.instead}, " Write "),
            (NO_EQUIVALENT, " It has no equivalent; "),
        )
        for name in sorted(names - OF_AIRFLOW)
    ],
)
def test_a_name_of_others_is_answered_with_ours(name: str, words: str) -> None:
    """By at least one operator, since each has other parameters."""
    answers = []
    for operator, make in OPERATORS.items():
        if name not in parameters_of(getattr(airflow_kftrain, operator)):
            with pytest.raises(InvalidSpec) as caught:
                make(task_id="t", **{name: SECRET})
            answers.append(str(caught.value))
    assert any(words in answer for answer in answers)
    assert not any(SECRET in answer for answer in answers)


FLYTES: list[tuple[dict[str, Any], str]] = [
    (
        {"num_workers": 4},
        "num_workers: not a parameter of {thing}. Write workers instead.",
    ),
    (
        {"elastic": Elastic()},
        "elastic: must set the number of nodes. Set nodes, or min_nodes and max_nodes: nodes=1 is "
        "what Flyte's Elastic() means.",
    ),
    (
        {
            "worker": Replica(count=2, restart_policy="Never"),
            "run_policy": RunPolicy(backoff_limit=3),
        },
        "run_policy.backoff_limit: has no effect while the restart policy of Worker is Never: it "
        "counts restarts of containers, got 3. Omit the restart policy, or use OnFailure. To run "
        "the whole job again instead, omit the limit and set the retries of the task.",
    ),
]


@pytest.mark.parametrize(("given", "answer"), FLYTES)
def test_what_is_usual_in_flyte_is_answered_when_the_file_is_parsed(
    given: dict[str, Any], answer: str
) -> None:
    def train() -> None: ...

    with pytest.raises(InvalidSpec) as caught:
        PyTorchJobOperator(task_id="t", image="i", **given)
    assert str(caught.value) == answer.format(thing="PyTorchJobOperator")
    with DAG("d", schedule=None), pytest.raises(InvalidSpec) as caught:
        pytorch(image="i", **given)(train)()
    assert str(caught.value) == answer.format(thing="@task.pytorch")


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("name", ["volumes", "cmds", "is_delete_operator_pod", "wrokres"])
def test_every_operator_answers(operator: str, name: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        OPERATORS[operator](task_id="t", **{name: SECRET})
    assert str(caught.value).startswith(f"{name}: not a parameter of {operator}. ")
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_of_a_mapped_task_too() -> None:
    with DAG("d", schedule=None), pytest.raises(InvalidSpec, match=r"Write pod=Pod\(volumes=...\)"):
        PyTorchJobOperator.partial(task_id="t", image="i", workers=1, volumes=[])
    with DAG("d", schedule=None), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it was never mapped
        partial = PyTorchJobOperator.partial(task_id="t", image="i", workers=1)
        with pytest.raises(InvalidSpec, match="cmds: not a parameter .* Write command instead"):
            partial.expand(cmds=[["a"]])
        assert partial.expand(command=[["a"]]).task_id == "t"
    with DAG("d", schedule=None), pytest.raises(InvalidSpec, match="job_name: not a parameter"):
        TrainingJobSensor.partial(task_id="t", kind="PyTorchJob", job_name="j")


@pytest.mark.parametrize("decorate", [pytorch, task.pytorch], ids=["typed", "airflow"])
def test_a_decorator_answers_where_it_stands(decorate: Any) -> None:
    def train() -> None: ...

    with pytest.raises(InvalidSpec) as caught:
        decorate(image="i", workers=1, num_procs_per_worker=SECRET, multiple_outputs=False)(train)
    assert str(caught.value) == (
        "num_procs_per_worker: not a parameter of @task.pytorch. "
        "Write elastic=Elastic(nproc_per_node=...)."
    )


def test_an_operator_of_the_authors_own_has_its_own_parameters() -> None:
    class Ours(PyTorchJobOperator):
        def __init__(self, *, dataset: str, **kwargs: Any) -> None:
            super().__init__(**kwargs)

    assert Ours(task_id="t", image="i", workers=1, dataset="d").image == "i"
    with pytest.raises(
        InvalidSpec, match="datset: not a parameter of Ours. Did you mean 'dataset'"
    ):
        Ours(task_id="t", image="i", workers=1, dataset="d", datset="d")


def test_default_args_may_hold_what_is_for_others() -> None:
    defaults = {"volumes": [], "cmds": [], "image": "i", "resources": {"cpus": 1}, "queue": "q"}
    with DAG("d", schedule=None, default_args=defaults), warnings.catch_warnings():
        warnings.simplefilter("error")
        assert PyTorchJobOperator(task_id="t", workers=1).image == "i"
        mapped = PyTorchJobOperator.partial(task_id="m", workers=1).expand(command=[["a"]])
    assert mapped.unmap({"command": ["a"]}).image == "i"


# Airflow's own


@pytest.mark.parametrize("resources", [{"cpu": 1}, {"cpus": 1}, SECRET])
def test_resources_are_airflows(resources: Any) -> None:
    told = "resources: is a parameter of Airflow, for its worker and not for the pods. Write "
    with pytest.raises(InvalidSpec) as caught:
        OPERATORS["PyTorchJobOperator"](task_id="t", resources=resources)
    assert str(caught.value) == f"{told}container_resources=Resources(...)."
    with pytest.raises(InvalidSpec) as caught:
        OPERATORS["TrainingJobOperator"](task_id="t", resources=resources)
    assert str(caught.value) == f"{told}resources of the pods into the manifest."
    with DAG("d", schedule=None), pytest.raises(InvalidSpec, match="^resources: "):
        PyTorchJobOperator.partial(task_id="t", workers=1, resources=resources)


def warned(make: Callable[..., Any], **given: Any) -> list[warnings.WarningMessage]:
    with DAG("d", schedule=None), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        make(task_id="t", **given)
    return caught


def mapped(**given: Any) -> Any:
    return PyTorchJobOperator.partial(image="i", workers=1, **given).expand(command=[["a"]])


@pytest.mark.parametrize("make", [OPERATORS["PyTorchJobOperator"], mapped])
def test_a_queue_without_effect_is_warned_of(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__EXECUTOR", "LocalExecutor")
    (warning,) = warned(make, queue="gpu")
    assert str(warning.message).startswith("queue: is a parameter of Airflow")
    assert "write queue_name" in str(warning.message)
    assert warning.filename == __file__
    assert warned(make, queue="gpu", queue_name="gpu") == []
    assert warned(make) == []
    monkeypatch.setenv("AIRFLOW__CORE__EXECUTOR", "LocalExecutor,CeleryExecutor")
    assert airflow_compat.has_queues()
    assert warned(make, queue="gpu") == []


def test_a_variable_without_effect_is_warned_of_at_its_line() -> None:
    (warning,) = warned(OPERATORS["PyTorchJobOperator"], env={"RANK": SECRET})
    assert str(warning.message).startswith("env: training-operator sets RANK itself")
    assert warning.filename == __file__
    assert SECRET not in str(warning.message)
