"""The parameters of operators, and the fields of job specs that become parameters, must not use the
names of BaseOperator: `resources`, `queue` or `dry_run` would break Airflow."""

from __future__ import annotations

import dataclasses
import inspect

import pytest
from airflow.sdk import BaseOperator, BaseSensorOperator

import airflow_kftrain
from airflow_kftrain.specs.job import JobSpec

JOBS = {
    name: value
    for name in airflow_kftrain.__all__
    if inspect.isclass(value := getattr(airflow_kftrain, name)) and issubclass(value, JobSpec)
}


def names_of_an_operator() -> set[str]:
    """All names of an operator: methods, properties, parameters, and attributes that it sets."""
    operator = BaseOperator(task_id="any")
    annotated = {name for base in BaseOperator.__mro__ for name in inspect.get_annotations(base)}
    parameters = set(inspect.signature(BaseOperator.__init__).parameters)
    return {*dir(operator), *vars(operator), *annotated, *parameters}


def test_the_names_are_really_known() -> None:
    assert {"resources", "queue", "execute", "dry_run", "pool"} <= names_of_an_operator()


@pytest.mark.parametrize("name", JOBS)
def test_no_field_of_a_spec_has_the_name_of_something_an_operator_has(name: str) -> None:
    fields = {field.name for field in dataclasses.fields(JOBS[name])}
    assert fields & names_of_an_operator() == set()


def test_all_job_specs_are_looked_at() -> None:
    assert set(JOBS) == {"HorovodJob", "MPIJob", "PyTorchJob", "TFJob", "TrainJob"}


# By their signatures


OPERATORS = {
    name: value
    for name in airflow_kftrain.__all__
    if inspect.isclass(value := getattr(airflow_kftrain, name)) and issubclass(value, BaseOperator)
}
MOST_PARAMETERS = 12
every_operator = pytest.mark.parametrize("name", OPERATORS)


def own_parameters(operator: type) -> dict[str, inspect.Parameter]:
    """The parameters of its own `__init__`, without those that it passes on."""
    init = vars(operator).get("__init__")
    if init is None or operator.__module__.split(".")[0] != "airflow_kftrain":
        return {}
    parameters = inspect.signature(inspect.unwrap(init)).parameters
    return {name: value for name, value in parameters.items() if name not in ("self", "kwargs")}


def test_all_operators_are_looked_at() -> None:
    assert sorted(OPERATORS) == [
        "HorovodJobOperator",
        "MPIJobOperator",
        "PyTorchJobOperator",
        "TFJobOperator",
        "TrainJobOperator",
        "TrainingJobOperator",
        "TrainingJobSensor",
    ]


@every_operator
def test_no_parameter_has_the_name_of_something_an_operator_has(name: str) -> None:
    taken = names_of_an_operator()
    if issubclass(OPERATORS[name], BaseSensorOperator):
        taken |= set(dir(BaseSensorOperator))
        taken |= set(inspect.signature(BaseSensorOperator.__init__).parameters)
    parameters = {own for base in OPERATORS[name].__mro__ for own in own_parameters(base)}
    assert len(parameters) > 5
    assert parameters & taken == set()


@every_operator
def test_parameters_are_few_for_each_layer_and_given_by_name(name: str) -> None:
    for base in OPERATORS[name].__mro__:
        parameters = own_parameters(base)
        assert len(parameters) <= MOST_PARAMETERS
        assert all(value.kind is value.KEYWORD_ONLY for value in parameters.values())


@every_operator
def test_every_parameter_is_a_template_field_but_those_that_say_how_to_wait(name: str) -> None:
    operator = OPERATORS[name]
    parameters = {own for base in operator.__mro__ for own in own_parameters(base)}
    assert set(operator.template_fields) == parameters - {"deferrable", "wait_for_completion"}
    assert len(operator.template_fields) == len(set(operator.template_fields))


@every_operator
def test_an_operator_has_the_fields_of_its_spec(name: str) -> None:
    spec = getattr(OPERATORS[name], "spec_type", None)
    if spec is not None:
        fields = {field.name: field.default for field in dataclasses.fields(spec)}
        fields.pop("function", None)  # created by decorators
        assert set(OPERATORS[name].spec_fields) == set(fields)
        for base in OPERATORS[name].__mro__:
            for own, parameter in own_parameters(base).items():
                if own in fields and fields[own] is not dataclasses.MISSING:
                    assert parameter.default == fields[own]
