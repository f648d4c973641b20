"""Distributed training jobs on Kubernetes as Airflow tasks.

All public names are here. Each is imported when it is first used, so a DAG file loads only what it
uses.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_kftrain.errors import ClusterError as ClusterError
    from airflow_kftrain.errors import InvalidSpec as InvalidSpec
    from airflow_kftrain.errors import KfTrainError as KfTrainError
    from airflow_kftrain.errors import UnknownKind as UnknownKind
    from airflow_kftrain.manifests import build_manifest as build_manifest
    from airflow_kftrain.manifests.identity import Owner as Owner
    from airflow_kftrain.operators.mpi_job import HorovodJobOperator as HorovodJobOperator
    from airflow_kftrain.operators.mpi_job import MPIJobOperator as MPIJobOperator
    from airflow_kftrain.operators.pytorch_job import PyTorchJobOperator as PyTorchJobOperator
    from airflow_kftrain.operators.raw_manifest import TrainingJobOperator as TrainingJobOperator
    from airflow_kftrain.operators.tf_job import TFJobOperator as TFJobOperator
    from airflow_kftrain.operators.train_job import TrainJobOperator as TrainJobOperator
    from airflow_kftrain.sensors import TrainingJobSensor as TrainingJobSensor
    from airflow_kftrain.specs.code import Code as Code
    from airflow_kftrain.specs.containers import Container as Container
    from airflow_kftrain.specs.elastic import Elastic as Elastic
    from airflow_kftrain.specs.env import FromConfigMap as FromConfigMap
    from airflow_kftrain.specs.env import FromField as FromField
    from airflow_kftrain.specs.env import FromSecret as FromSecret
    from airflow_kftrain.specs.lifecycle import Lifecycle as Lifecycle
    from airflow_kftrain.specs.lifecycle import Links as Links
    from airflow_kftrain.specs.lifecycle import Logs as Logs
    from airflow_kftrain.specs.mpi_job import Horovod as Horovod
    from airflow_kftrain.specs.mpi_job import HorovodJob as HorovodJob
    from airflow_kftrain.specs.mpi_job import MPIJob as MPIJob
    from airflow_kftrain.specs.mpi_job import Mpirun as Mpirun
    from airflow_kftrain.specs.pods import Placement as Placement
    from airflow_kftrain.specs.pods import Pod as Pod
    from airflow_kftrain.specs.policies import RunPolicy as RunPolicy
    from airflow_kftrain.specs.policies import SchedulingPolicy as SchedulingPolicy
    from airflow_kftrain.specs.pytorch_job import PyTorchJob as PyTorchJob
    from airflow_kftrain.specs.raw_manifest import RawManifest as RawManifest
    from airflow_kftrain.specs.replicas import Replica as Replica
    from airflow_kftrain.specs.resources import Resources as Resources
    from airflow_kftrain.specs.tf_job import TFJob as TFJob
    from airflow_kftrain.specs.timeouts import Timeouts as Timeouts
    from airflow_kftrain.specs.train_job import Initializer as Initializer
    from airflow_kftrain.specs.train_job import Runtime as Runtime
    from airflow_kftrain.specs.train_job import Source as Source
    from airflow_kftrain.specs.train_job import TrainJob as TrainJob

    __version__: str

_MODULES = {
    "ClusterError": "errors",
    "Code": "specs.code",
    "Container": "specs.containers",
    "Elastic": "specs.elastic",
    "FromConfigMap": "specs.env",
    "FromField": "specs.env",
    "FromSecret": "specs.env",
    "Horovod": "specs.mpi_job",
    "HorovodJob": "specs.mpi_job",
    "HorovodJobOperator": "operators.mpi_job",
    "Initializer": "specs.train_job",
    "InvalidSpec": "errors",
    "KfTrainError": "errors",
    "Lifecycle": "specs.lifecycle",
    "Links": "specs.lifecycle",
    "Logs": "specs.lifecycle",
    "MPIJob": "specs.mpi_job",
    "MPIJobOperator": "operators.mpi_job",
    "Mpirun": "specs.mpi_job",
    "Owner": "manifests.identity",
    "Placement": "specs.pods",
    "Pod": "specs.pods",
    "PyTorchJob": "specs.pytorch_job",
    "PyTorchJobOperator": "operators.pytorch_job",
    "RawManifest": "specs.raw_manifest",
    "Replica": "specs.replicas",
    "Resources": "specs.resources",
    "RunPolicy": "specs.policies",
    "Runtime": "specs.train_job",
    "SchedulingPolicy": "specs.policies",
    "Source": "specs.train_job",
    "TFJob": "specs.tf_job",
    "TFJobOperator": "operators.tf_job",
    "Timeouts": "specs.timeouts",
    "TrainJob": "specs.train_job",
    "TrainJobOperator": "operators.train_job",
    "TrainingJobOperator": "operators.raw_manifest",
    "TrainingJobSensor": "sensors",
    "UnknownKind": "errors",
    "build_manifest": "manifests",
}

__all__ = sorted(_MODULES)


# Not for type checkers: they would accept any name, even a misspelt one.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name == "__version__":
            from importlib.metadata import version

            value = version("airflow-kftrain")
        elif name in _MODULES:
            value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
