"""Task instances that never run: bench/real_airflow.py defers them without a worker."""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG, BaseOperator

MANY = 500


class Deferred(BaseOperator):
    def __init__(self, *, number: int, **given: Any) -> None:
        super().__init__(**given)
        self.number = number


with DAG("many", schedule=None, is_paused_upon_creation=True) as dag:
    Deferred.partial(task_id="train").expand(number=list(range(MANY)))
