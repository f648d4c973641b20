"""Names in DAG files, in Airflow's database and on clusters: parameters, deferred tasks, serialised
DAGs, XComs, labels of jobs. None of them may move or disappear. New ones are added when they are
released."""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import Any

from airflow.sdk import BaseOperator
from airflow.sdk.module_loading import import_string

import airflow_kftrain
from airflow_kftrain import links
from airflow_kftrain.kinds import JobReference
from airflow_kftrain.manifests import identity
from airflow_kftrain.messages import MaskedText, Outcome, ReplicaPod, WatchOrder
from airflow_kftrain.provider_info import get_provider_info
from airflow_kftrain.specs.lifecycle import PLACEHOLDERS

TASK = (
    "namespace kubernetes_conn_id deferrable wait_for_completion poll_interval timeouts lifecycle "
    "logs links"
)
JOB = "image command args env container_resources container pod run_policy queue_name code"

# The public names, with the parameters of functions and classes.
PUBLIC = {
    "ClusterError": "",
    "Code": "files requirements pip_args fatal python",
    "Container": "env_from image_pull_policy security_context working_dir ports liveness_probe",
    "Elastic": (
        "nodes min_nodes max_nodes nproc_per_node max_restarts rdzv_id rdzv_conf "
        "join_timeout read_timeout metrics"
    ),
    "FromConfigMap": "name key optional",
    "FromField": "path",
    "FromSecret": "name key optional",
    "Horovod": "min_np max_np discovery_script elastic_timeout network_interface log_level verbose",
    "HorovodJob": (
        "*JOB workers launcher worker slots_per_worker implementation version mpirun horovod"
    ),
    "HorovodJobOperator": (
        "*TASK *JOB horovod workers launcher worker slots_per_worker implementation version mpirun"
    ),
    "Initializer": "dataset model",
    "InvalidSpec": "",
    "KfTrainError": "",
    "Lifecycle": "on_finish reattach fail_fast skip_on_exit_code result_required system_retries "
    "fail_on_exit_code grace",
    "Links": "training_job leader_logs worker_logs dashboard",
    "Logs": "waiting deferred bytes_a_minute",
    "MPIJob": "*JOB workers launcher worker slots_per_worker implementation version mpirun",
    "MPIJobOperator": (
        "*TASK *JOB workers launcher worker slots_per_worker implementation version mpirun"
    ),
    "Mpirun": "processes options",
    "Owner": (
        "instance dag_id task_id run_id ti_id map_index try_number clears region_id region_index"
    ),
    "Placement": "node_selector tolerations affinity priority_class scheduler_name safe_to_evict",
    "Pod": (
        "volumes volume_mounts shared_memory placement service_account image_pull_secrets "
        "labels annotations init_containers sidecars template_file patch"
    ),
    "PyTorchJob": "*JOB workers master worker elastic",
    "PyTorchJobOperator": "*TASK *JOB workers master worker elastic",
    "RawManifest": "manifest code",
    "Replica": "count image command args env container_resources container restart_policy pod",
    "Resources": "cpu memory gpu ephemeral_storage extended",
    "RunPolicy": "clean_pods ttl active_deadline backoff_limit suspend managed_by scheduling",
    "Runtime": "name kind",
    "SchedulingPolicy": "min_available queue min_resources priority_class timeout",
    "Source": "uri env secret",
    "TFJob": "*JOB workers chief worker ps evaluator success_policy dynamic_workers",
    "TFJobOperator": "*TASK *JOB workers chief worker ps evaluator success_policy dynamic_workers",
    "Timeouts": (
        "startup operator image_name image_pull container_config container_create "
        "volume_name volume unschedulable crash_loop"
    ),
    "TrainJob": "*JOB runtime num_nodes num_proc_per_node initializer runtime_patches mpirun",
    "TrainJobOperator": (
        "*TASK *JOB runtime num_nodes num_proc_per_node initializer runtime_patches mpirun"
    ),
    "TrainingJobOperator": "*TASK manifest code",
    "TrainingJobSensor": "kind name api_version namespace kubernetes_conn_id deferrable",
    "UnknownKind": "",
    "build_manifest": "spec owner namespace",
}

# What is stored with a deferred task, whichever version has deferred it.
STORED: dict[Any, str] = {
    WatchOrder: (
        "job api_version connection instance owner looped timeouts deadline fail_fast "
        "poll_interval show_logs bytes_a_minute ordered masked cluster"
    ),
    Outcome: (
        "verdict reason words report phase fault retryable exit_code result tail pods finished"
    ),
    JobReference: "kind namespace name uid",
    ReplicaPod: "role index pod container leads node container_id",
    MaskedText: "path shown",
}

# Names on jobs and in their pods.
ON_JOBS = {
    "INSTANCE_LABEL": "airflow-kftrain/instance",
    "IDENTITY_LABEL": "airflow-kftrain/identity",
    "OWNER_ANNOTATION": "airflow-kftrain/owner",
    "TRY_ANNOTATION": "airflow-kftrain/try",
    "CLEARS_ANNOTATION": "airflow-kftrain/clears",
    "DIGEST_ANNOTATION": "airflow-kftrain/digest",
    "DELIVERED_ANNOTATION": "airflow-kftrain/delivered",
    "UNATTENDED_ANNOTATION": "airflow-kftrain/unattended",
    "REGION_ID_ANNOTATION": "airflow-kftrain/region-id",
    "REGION_INDEX_ANNOTATION": "airflow-kftrain/region-index",
    "RUN_ID_VARIABLE": "KFTRAIN_RUN_ID",
    "ATTEMPT_VARIABLE": "KFTRAIN_ATTEMPT",
    "RESULT_VARIABLE": "KFTRAIN_RESULT_FILE",
}

# Airflow stores a link as an XCom, with a key that it derives from the name of the class.
LINKS = {
    "TrainingJobLink": ("Training job", "_link_TrainingJobLink"),
    "LeaderLogsLink": ("Leader logs", "_link_LeaderLogsLink"),
    "WorkerLogsLink": ("Worker logs", "_link_WorkerLogsLink"),
    "DashboardLink": ("Dashboard", "_link_DashboardLink"),
    "DeferralLink": ("Deferral", "_link_DeferralLink"),
}


def parameters(thing: Any) -> set[str]:
    if not (inspect.isclass(thing) and issubclass(thing, BaseOperator)):
        return set(inspect.signature(thing).parameters)
    own = (part for part in thing.__mro__ if part.__module__.startswith("airflow_kftrain"))
    constructors = [vars(part)["__init__"] for part in own if "__init__" in vars(part)]
    return {name for each in constructors for name in inspect.signature(each).parameters}


def test_public_names_keep_their_parameters() -> None:
    gone = {}
    for name, words in PUBLIC.items():
        thing = getattr(airflow_kftrain, name)
        frozen = set(words.replace("*TASK", TASK).replace("*JOB", JOB).split())
        if frozen and (missing := frozen - parameters(thing)):
            gone[name] = missing
    assert gone == {}


def test_what_is_stored_keeps_its_fields() -> None:
    assert {
        stored.__name__: missing
        for stored, words in STORED.items()
        if (missing := set(words.split()) - set(stored._fields))
    } == {}


def test_a_trigger_is_found_where_it_was() -> None:
    path = "airflow_kftrain.triggers.training_job.TrainingJobTrigger"
    order = {"job": {"kind": "PyTorchJob", "namespace": "ml", "name": "job", "uid": "uid"}}
    trigger = import_string(path)(order=order, links={})
    assert trigger.serialize() == (path, {"order": order, "links": {}})


def test_jobs_and_their_programs_find_the_same_names() -> None:
    assert {name: getattr(identity, name) for name in ON_JOBS} == ON_JOBS


def test_links_keep_their_places_and_keys() -> None:
    found = {name: getattr(links, name)() for name in LINKS}
    assert {name: (each.name, each.xcom_key) for name, each in found.items()} == LINKS


def test_templates_of_links_keep_their_placeholders() -> None:
    names = (
        "namespace job pod container role index node container_id dag_id task_id run_id map_index "
        "try_number identity start finish start_time finish_time"
    )
    assert set(names.split()) <= set(PLACEHOLDERS)


def test_the_provider_names_what_is_there() -> None:
    info = get_provider_info()
    assert info["package-name"] == "airflow-kftrain"
    assert set(info["config"]["kftrain"]["options"]) >= {
        "instance",
        "training_job_url",
        "leader_logs_url",
        "worker_logs_url",
        "dashboard_url",
    }
    for group in ("operators", "sensors", "hooks", "triggers"):
        for module in info[group][0]["python-modules"]:
            assert import_module(module)
    for path in info["extra-links"]:
        assert import_string(path)
