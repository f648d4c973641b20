"""The parameters of other operators and SDKs, and what to write here instead.

Only data, loaded on the way to an error. What a world calls as we do is left out.
tests/airflow/test_foreign_names.py compares Airflow's with what is installed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

_CONNECTION = "the Airflow connection named by kubernetes_conn_id says it"
_EVENTS = "events that matter are in the log and in the report"
_WATCHED = "jobs are watched, not polled"
_NAMED = "the job is named after its task, so that a retry finds it"
_FUNCTION = "decorate the function with @task.pytorch and call it with its arguments"
_ARGUMENTS = "pass such settings to your program, in args or as arguments of the function"
_MANIFEST = "use TrainingJobOperator(manifest=...) for a whole manifest"
_RENDEZVOUS = "the rendezvous is set up by this package and the training operator"
_FLYTE_ONLY = "it is a matter of Flyte"
_CREDENTIALS = "initializer.dataset.secret | env={'NAME': FromSecret('name', 'key')}"
_CACHE_RUNTIME = "runtime_patches"
_SECRET = "env={'NAME': FromSecret('name', 'key')}"
_WORKERS = "workers | num_nodes"
_PROCESSES = "elastic.nproc_per_node | num_proc_per_node | slots_per_worker"
_TTL = "run_policy.ttl=timedelta(seconds=...)"
_DEADLINE = "run_policy.active_deadline=timedelta(seconds=...)"
_REQUEST_AND_LIMIT = "container_resources.cpu=(request, limit)"


class World(NamedTuple):
    """What people come from."""

    distribution: str
    version: str
    instead: Mapping[str, str]
    """Name -> where it goes: the path of a parameter or of a field of a noun, such as
    "pod.placement.affinity", perhaps with a value. The first of several that fits counts."""
    without: Mapping[str, str]
    """Name -> what happens without it, as half a sentence."""


KUBERNETES = World(
    "apache-airflow-providers-cncf-kubernetes",
    "10.25.0",
    instead={
        "active_deadline_seconds": _DEADLINE,
        "affinity": "pod.placement.affinity",
        "annotations": "pod.annotations",
        "arguments": "args",
        "automount_service_account_token": (
            "pod.patch={'spec': {'automountServiceAccountToken': ...}}"
        ),
        "backoff_limit": "run_policy.backoff_limit",
        "cmds": "command",
        "completions": _WORKERS,
        "configmaps": "container.env_from=[{'configMapRef': {'name': ...}}]",
        "container_logs": "logs.waiting",
        "container_security_context": "container.security_context",
        "dns_config": "pod.patch={'spec': {'dnsConfig': ...}}",
        "dnspolicy": "pod.patch={'spec': {'dnsPolicy': ...}}",
        "durable": "lifecycle.reattach",
        "env_from": "container.env_from",
        "env_vars": "env",
        "full_pod_spec": "pod.patch",
        "get_logs": "logs.waiting",
        "host_aliases": "pod.patch={'spec': {'hostAliases': ...}}",
        "hostnetwork": "pod.patch={'spec': {'hostNetwork': True}}",
        "image_pull_policy": "container.image_pull_policy",
        "image_pull_secrets": "pod.image_pull_secrets",
        "init_containers": "pod.init_containers",
        "is_delete_operator_pod": "lifecycle.on_finish",
        "job_poll_interval": "poll_interval=timedelta(seconds=...)",
        "labels": "pod.labels",
        "logging_interval": "logs.deferred",
        "node_selector": "pod.placement.node_selector",
        "on_finish_action": "lifecycle.on_finish",
        "parallelism": _WORKERS,
        "pod_runtime_info_envs": "env={'NAME': FromField('status.podIP')}",
        "pod_template_dict": "pod.patch",
        "pod_template_file": "pod.template_file",
        "ports": "container.ports",
        "priority_class_name": "pod.placement.priority_class",
        "reattach_on_restart": "lifecycle.reattach",
        "runtime_class_name": "pod.patch={'spec': {'runtimeClassName': ...}}",
        "schedule_timeout_seconds": (
            "timeouts.unschedulable=timedelta(seconds=...)"
            " | run_policy.scheduling.timeout=timedelta(seconds=...)"
        ),
        "schedulername": "pod.placement.scheduler_name",
        "secrets": _SECRET,
        "security_context": "pod.patch={'spec': {'securityContext': ...}}",
        "service_account_name": "pod.service_account",
        "skip_on_exit_code": "lifecycle.skip_on_exit_code",
        "startup_timeout_seconds": "timeouts.startup=timedelta(seconds=...)",
        "suspend": "run_policy.suspend",
        "termination_grace_period": "pod.patch={'spec': {'terminationGracePeriodSeconds': ...}}",
        "tolerations": "pod.placement.tolerations",
        "ttl_seconds_after_finished": _TTL,
        "volume_mounts": "pod.volume_mounts",
        "volumes": "pod.volumes",
        "wait_until_job_complete": "wait_for_completion",
    },
    without={
        "base_container_name": "the training operator says how the main container is called",
        "base_container_status_polling_interval": _WATCHED,
        "callbacks": "Airflow's own callbacks, such as on_success_callback, are called",
        "cluster_context": _CONNECTION,
        "completion_mode": "pods of a job with one node have an index anyway",
        "config_file": _CONNECTION,
        "container_name_log_prefix_enabled": "lines of several pods say which pod they are from",
        "discover_pods_retry_number": _WATCHED,
        "full_job_spec": _MANIFEST,
        "hostname": "the training operator names the pods, so that they find each other",
        "in_cluster": _CONNECTION,
        "init_container_logs": "the report shows the log of an init container that fails",
        "job_template_file": _MANIFEST,
        "log_events_on_failure": _EVENTS,
        "log_events_on_startup": _EVENTS,
        "log_formatter": "lines of several pods say which pod they are from",
        "log_pod_spec_on_failure": "the log shows the manifest of every job",
        "manual_selector": "the training operator finds its own pods",
        "name": _NAMED,
        "on_kill_action": "a job of a task that is ended is deleted",
        "on_kill_propagation_policy": "a job of a task that is ended is deleted with its pods",
        "progress_callback": "the log of the pods is in the task's log",
        "random_name_suffix": _NAMED,
        "selector": "the training operator finds its own pods",
        "startup_check_interval_seconds": _WATCHED,
        "subdomain": "the training operator names the pods, so that they find each other",
        "termination_message_policy": "it is FallbackToLogsOnError, which the report needs",
        "trigger_kwargs": "the trigger gets what it needs from the operator",
        "unwrap_single": "the value of the task is that of one pod, the leader",
        "xcom_sidecar_container_security_context": "a result needs no sidecar",
    },
)

FLYTE = World(
    "flytekit, flytekitplugins-kfpytorch, flytekitplugins-kftensorflow, flytekitplugins-kfmpi",
    "1.16.31",
    instead={
        "accelerator": "pod.placement.node_selector",
        "clean_pod_policy": "run_policy.clean_pods",
        "container_image": "image",
        "discovery_script_path": "horovod.discovery_script",
        "docs": "doc_md",
        "elastic_timeout": "horovod.elastic_timeout=timedelta(seconds=...)",
        "environment": "env",
        "increase_shared_mem": "pod.shared_memory",
        "interruptible": "pod.placement.tolerations",
        "limits": _REQUEST_AND_LIMIT,
        "log_level": "horovod.log_level",
        "max_restarts": "elastic.max_restarts",
        "mem": "container_resources.memory",
        "monitor_interval": "env={'PET_MONITOR_INTERVAL': ...}",
        "nnodes": "elastic.nodes | num_nodes | workers",
        "nproc_per_node": _PROCESSES,
        "num_chief_replicas": "chief=Replica()",
        "num_evaluator_replicas": "evaluator=Replica()",
        "num_ps_replicas": "ps.count",
        "num_workers": _WORKERS,
        "pod_spec": "pod.patch",
        "pod_template": "pod.patch",
        "pod_template_name": "pod.template_file",
        "rdzv_configs": "elastic.rdzv_conf",
        "replicas": "worker.count | num_nodes",
        "requests": _REQUEST_AND_LIMIT,
        "resources": "container_resources=Resources(...)",
        "restart_policy": "worker.restart_policy",
        "secret_requests": _SECRET,
        "shared_memory": "pod.shared_memory",
        "slots": "slots_per_worker",
        "timeout": (
            "execution_timeout=timedelta(...) | run_policy.scheduling.timeout=timedelta(...)"
        ),
        "verbose": "horovod.verbose",
    },
    without={
        "cache": "a task runs whenever its DAG does; skip it in an earlier task",
        "cache_ignore_input_vars": _FLYTE_ONLY,
        "cache_serialize": _FLYTE_ONLY,
        "cache_version": _FLYTE_ONLY,
        "deck_fields": _FLYTE_ONLY,
        "deprecated": _FLYTE_ONLY,
        "disable_deck": _FLYTE_ONLY,
        "enable_deck": _FLYTE_ONLY,
        "execution_mode": _FLYTE_ONLY,
        "node_dependency_hints": _FLYTE_ONLY,
        "num_launcher_replicas": "there is always one launcher",
        "pickle_untyped": "arguments and values are JSON",
        "primary_container_name": "the training operator says how the main container is called",
        "start_method": "torchrun starts the processes",
        "task_config": "its fields are parameters of the operator or of the decorator",
        "task_resolver": _FLYTE_ONLY,
    },
)

TRAINING_SDK = World(
    "kubeflow-training",
    "1.9.4",
    instead={
        "active_deadline_seconds": _DEADLINE,
        "annotations": "pod.annotations",
        "backoff_limit": "run_policy.backoff_limit",
        "base_image": "image",
        "clean_pod_policy": "run_policy.clean_pods",
        "elastic_policy": "elastic",
        "enable_dynamic_worker": "dynamic_workers",
        "env_vars": "env",
        "init_env_vars": "initializer.model.env",
        "labels": "pod.labels",
        "managed_by": "run_policy.managed_by",
        "max_replicas": "elastic.max_nodes",
        "max_restarts": "elastic.max_restarts",
        "metrics": "elastic.metrics",
        "min_available": "run_policy.scheduling.min_available",
        "min_replicas": "elastic.min_nodes",
        "min_resources": "run_policy.scheduling.min_resources",
        "mpi_replica_specs": "launcher=Replica(...), worker=Replica(...)",
        "n_proc_per_node": _PROCESSES,
        "nproc_per_node": _PROCESSES,
        "num_chief_replicas": "chief=Replica()",
        "num_procs_per_worker": _PROCESSES,
        "num_ps_replicas": "ps.count",
        "num_workers": _WORKERS,
        "packages_to_install": "code.requirements",
        "pip_index_url": "code.pip_args=['--index-url', ...]",
        "priority_class": "pod.placement.priority_class | run_policy.scheduling.priority_class",
        "pytorch_replica_specs": "master=Replica(...), worker=Replica(...)",
        "rdzv_conf": "elastic.rdzv_conf",
        "rdzv_id": "elastic.rdzv_id",
        "replicas": "worker.count | num_nodes",
        "resources_per_worker": "container_resources=Resources(...)",
        "restart_policy": "worker.restart_policy",
        "schedule_timeout_seconds": (
            "timeouts.unschedulable=timedelta(seconds=...)"
            " | run_policy.scheduling.timeout=timedelta(seconds=...)"
        ),
        "scheduling_policy": "run_policy.scheduling",
        "suspend": "run_policy.suspend",
        "template": "pod.patch",
        "tf_replica_specs": "worker=Replica(...)",
        "ttl_seconds_after_finished": _TTL,
        "volume_mounts": "pod.volume_mounts",
        "volumes": "pod.volumes",
    },
    without={
        "api_version": _MANIFEST,
        "client_configuration": _CONNECTION,
        "config_file": _CONNECTION,
        "context": _CONNECTION,
        "dataset_provider_parameters": _ARGUMENTS,
        "job": _MANIFEST,
        "job_kind": "each kind has an operator of its own",
        "kind": "each kind has an operator of its own",
        "main_container": "the package sets it where the kind has it",
        "metadata": _MANIFEST,
        "model_provider_parameters": _ARGUMENTS,
        "name": _NAMED,
        "parameters": _FUNCTION,
        "rdzv_backend": _RENDEZVOUS,
        "rdzv_host": _RENDEZVOUS,
        "rdzv_port": _RENDEZVOUS,
        "spec": _MANIFEST,
        "standalone": "torchrun runs standalone if there is one node",
        "status": _MANIFEST,
        "storage_config": "mount a volume, with pod=Pod(volumes=..., volume_mounts=...)",
        "train_func": _FUNCTION,
        "trainer_parameters": _ARGUMENTS,
    },
)

TRAINER_SDK = World(
    "kubeflow",
    "0.5.0",
    instead={
        "access_key_id": _CREDENTIALS,
        "access_token": _CREDENTIALS,
        "affinity": "pod.placement.affinity",
        "annotations": "pod.annotations",
        "containers": "pod.patch={'spec': {'containers': [...]}}",
        "dataset": "initializer.dataset",
        "endpoint": "initializer.dataset.env={'ENDPOINT': ...}",
        "head_cpu": _CACHE_RUNTIME,
        "head_mem": _CACHE_RUNTIME,
        "iam_role": _CACHE_RUNTIME,
        "ignore_patterns": "initializer.dataset.env={'IGNORE_PATTERNS': ...}",
        "image_pull_secrets": "pod.image_pull_secrets",
        "init_containers": "pod.init_containers",
        "labels": "pod.labels",
        "metadata_loc": _CACHE_RUNTIME,
        "model": "initializer.model",
        "node_selector": "pod.placement.node_selector",
        "num_data_nodes": _CACHE_RUNTIME,
        "num_nodes": "elastic.nodes | workers",
        "packages_to_install": "code.requirements",
        "pip_index_urls": "code.pip_args=['--index-url', ...]",
        "region": "initializer.dataset.env={'REGION': ...}",
        "replicated_jobs": "runtime_patches",
        "resources_per_node": "container_resources=Resources(...)",
        "role_arn": "initializer.dataset.env={'ROLE_ARN': ...}",
        "scheduling_gates": "pod.patch={'spec': {'schedulingGates': ...}}",
        "seconds": _DEADLINE,
        "secret_access_key": _CREDENTIALS,
        "security_context": "pod.patch={'spec': {'securityContext': ...}}",
        "service_account_name": "pod.service_account",
        "storage_uri": "initializer.dataset.uri",
        "template": "pod.patch",
        "tolerations": "pod.placement.tolerations",
        "training_runtime_spec": "runtime_patches",
        "volume_mounts": "pod.volume_mounts",
        "volumes": "pod.volumes",
        "worker_cpu": _CACHE_RUNTIME,
        "worker_mem": _CACHE_RUNTIME,
    },
    without={
        "apply_lora_to_mlp": _ARGUMENTS,
        "apply_lora_to_output": _ARGUMENTS,
        "backend_config": _CONNECTION,
        "batch_size": _ARGUMENTS,
        "column_map": _ARGUMENTS,
        "config": _ARGUMENTS,
        "dataset_preprocess_config": _ARGUMENTS,
        "dtype": _ARGUMENTS,
        "epochs": _ARGUMENTS,
        "func": _FUNCTION,
        "func_args": _FUNCTION,
        "kind": "each kind has an operator of its own",
        "lora_alpha": _ARGUMENTS,
        "lora_attn_modules": _ARGUMENTS,
        "lora_dropout": _ARGUMENTS,
        "lora_rank": _ARGUMENTS,
        "loss": _ARGUMENTS,
        "manager": "this package patches under a name of its own",
        "metadata": "labels and annotations go into pod=Pod(...)",
        "name": _NAMED,
        "new_system_prompt": _ARGUMENTS,
        "options": "they are parameters of the operator",
        "peft_config": _ARGUMENTS,
        "pretrained_model": "use initializer=Initializer(model=Source(...))",
        "quantize_base": _ARGUMENTS,
        "source": _ARGUMENTS,
        "spec": _MANIFEST,
        "split": _ARGUMENTS,
        "train_on_input": _ARGUMENTS,
        "trainer": "its fields are parameters of the operator",
        "use_dora": _ARGUMENTS,
    },
)

WORLDS = (KUBERNETES, FLYTE, TRAINING_SDK, TRAINER_SDK)
"""Where two of them differ on a name, the earlier one counts."""
