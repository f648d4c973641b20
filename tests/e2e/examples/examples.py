"""Two of the example DAGs, except that jobs and pods stay, for a look at their pages."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

from airflow.sdk import DAG

from airflow_kftrain import Lifecycle, RunPolicy

_FOLDER = Path(__file__).parents[3] / "example_dags"
_KEPT = {
    "lifecycle": Lifecycle(on_finish="keep"),
    "run_policy": RunPolicy(clean_pods="None"),
}


def _dag(name: str) -> DAG:
    example = runpy.run_path(str(_FOLDER / f"{name}.py"))
    train: Any = example["train"]
    if train.is_mapped:
        train.partial_kwargs.update(_KEPT)
    else:
        vars(train).update(_KEPT)
    dag: DAG = example["dag"]
    return dag


pytorch_job = _dag("pytorch_job")
mapped_jobs = _dag("mapped_jobs")
