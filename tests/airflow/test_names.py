"""The fields of the job specs become parameters of operators, and so must leave BaseOperator's own
names alone: `resources`, `queue` or `dry_run` on an operator would break Airflow."""

from __future__ import annotations

import dataclasses
import inspect

import pytest
from airflow.sdk import BaseOperator

import airflow_kftrain
from airflow_kftrain.specs.job import JobSpec

JOBS = {
    name: value
    for name in airflow_kftrain.__all__
    if inspect.isclass(value := getattr(airflow_kftrain, name)) and issubclass(value, JobSpec)
}


def names_of_an_operator() -> set[str]:
    """All that an operator has: methods, properties, parameters, and what it sets on itself."""
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
