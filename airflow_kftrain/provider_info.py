"""The description of this provider, which Airflow reads in each of its processes."""

from __future__ import annotations

from typing import Any

_INTEGRATION = "Kubeflow Trainer"


def get_provider_info() -> dict[str, Any]:
    return {
        "package-name": "airflow-kftrain",  # must be the name of the distribution
        "name": "Kubeflow training",
        "description": (
            "Distributed training jobs on Kubernetes: PyTorch, TensorFlow, MPI, Horovod and "
            "Kubeflow Trainer."
        ),
        "integrations": [
            {
                "integration-name": _INTEGRATION,
                "external-doc-url": "https://www.kubeflow.org/docs/components/trainer/",
                "tags": ["software"],
            }
        ],
        "operators": _modules(
            "operators.function",
            "operators.mpi_job",
            "operators.pytorch_job",
            "operators.raw_manifest",
            "operators.tf_job",
            "operators.train_job",
        ),
        "task-decorators": [
            {"name": name, "class-name": f"airflow_kftrain.decorators.{name}"}
            for name in ("pytorch", "tensorflow", "mpi", "horovod", "trainjob")
        ],
        "sensors": _modules("sensors"),
        "hooks": _modules("hooks.training_job", "hooks.training_job_async"),
        "triggers": _modules("triggers.training_job"),
        "extra-links": [
            f"airflow_kftrain.links.{name}"
            for name in ("TrainingJobLink", "LeaderLogsLink", "WorkerLogsLink", "DashboardLink")
        ],
        "config": {
            "kftrain": {
                "description": "Training jobs that Airflow runs on Kubernetes.",
                "options": {
                    "instance": {
                        "description": (
                            "The name of this Airflow. Every job carries it as a label, so that "
                            "several Airflows can share a namespace without touching each other's "
                            "jobs. The name must be unique, and the same on all machines of one "
                            "Airflow. After a change of the name, jobs with the old name no longer "
                            "belong to this Airflow. Orphans, that is unfinished jobs whose task "
                            "has ended, are deleted only if this option is set, or a ``base_url`` "
                            "that is not the local machine's.\n"
                            "Empty: host, port and path of ``[api] base_url``, or "
                            "``localhost:8080`` if that is not set either."
                        ),
                        "type": "string",
                        "version_added": "0.1.0",
                        "example": "ml-production",
                        "default": "",
                    },
                    "training_job_url": _link(
                        "Training job", "https://kubernetes.example.com/{namespace}/{job}"
                    ),
                    "leader_logs_url": _link(
                        "Leader logs",
                        "https://logs.example.com/?pod={pod}&from={start}&to={finish}",
                    ),
                    "worker_logs_url": _link(
                        "Worker logs",
                        "https://logs.example.com/?job={job}&from={start}&to={finish}",
                        "It is also the template of the XCom ``log_links``, with one URL per pod.",
                    ),
                    "dashboard_url": _link(
                        "Dashboard", "https://grafana.example.com/d/training?var-job={job}"
                    ),
                    "task_tab": {
                        "description": (
                            "Whether the page of a task instance has the tab ``Training``. The API "
                            "server reads this option, and workers and the triggerer, which write "
                            "what the tab shows while a job runs only if there is one. Airflow 3.3 "
                            "cannot limit a tab to some tasks: with ``True`` it is on the pages of "
                            "all tasks. Before Airflow 3.3 there is no tab.\n"
                            "Empty: ``True`` on Airflow 3.4, ``False`` on Airflow 3.3."
                        ),
                        "type": "boolean",
                        "version_added": "0.1.0",
                        "example": "True",
                        "default": "",
                    },
                },
            },
        },
    }


def _modules(*names: str) -> list[dict[str, Any]]:
    modules = [f"airflow_kftrain.{name}" for name in names]
    return [{"integration-name": _INTEGRATION, "python-modules": modules}]


def _link(button: str, example: str, more: str = "") -> dict[str, str]:
    """An option for the URL template of a button."""
    return {
        "description": (
            f"URL template of the button ``{button}``, unless the task sets it in ``links``. "
            "Placeholders of the job: ``{namespace}``, ``{job}``; of the replica: ``{pod}``, "
            "``{container}``, ``{role}``, ``{index}``, ``{node}``, ``{container_id}``; of the "
            "task: ``{dag_id}``, ``{task_id}``, ``{run_id}``, ``{map_index}``, ``{try_number}``, "
            "``{identity}``; in milliseconds since 1970: ``{start}``, ``{finish}``; in RFC 3339: "
            "``{start_time}``, ``{finish_time}``. Until the job has ended, its finish is a day "
            "from now. The button appears when all values that the URL needs are known. Only http "
            "and https are accepted.\n"
            f"Empty: no button. {more}"
        ).rstrip(),
        "type": "string",
        "version_added": "0.1.0",
        "example": example,
        "default": "",
    }
