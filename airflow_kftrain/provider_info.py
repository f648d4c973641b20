"""What Airflow reads to learn that this package is a provider, in every process it starts."""

from __future__ import annotations

from typing import Any

_INTEGRATION = "Kubeflow Trainer"


def get_provider_info() -> dict[str, Any]:
    return {
        "package-name": "airflow-kftrain",  # has to be the distribution's name
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
            "operators.mpi_job",
            "operators.pytorch_job",
            "operators.raw_manifest",
            "operators.tf_job",
            "operators.train_job",
        ),
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
                            "two Airflows can share a namespace and leave each other's jobs "
                            "alone: no two of them may have the same name, and it has to be the "
                            "same on all machines of one Airflow. Jobs made under a former name "
                            "are no longer taken for one's own. Jobs that nobody looks after any "
                            "more are only deleted where this is set, or a ``base_url`` that is "
                            "not the local machine's.\n"
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
                        "It is the template of the XCom ``log_links``, too, one URL a pod.",
                    ),
                    "dashboard_url": _link(
                        "Dashboard", "https://grafana.example.com/d/training?var-job={job}"
                    ),
                },
            },
        },
    }


def _modules(*names: str) -> list[dict[str, Any]]:
    modules = [f"airflow_kftrain.{name}" for name in names]
    return [{"integration-name": _INTEGRATION, "python-modules": modules}]


def _link(button: str, example: str, more: str = "") -> dict[str, str]:
    """An option that holds the URL of a button."""
    return {
        "description": (
            f"Where the button ``{button}`` leads, for tasks whose ``links`` do not say. "
            "Placeholders: ``{namespace}``, ``{job}``, ``{pod}``, ``{container}``, ``{role}``, "
            "``{index}``, ``{start}`` and ``{finish}``, the last two in milliseconds since 1970; "
            "while the end is not known, it is a day from now. The button appears when all that "
            "the URL asks for is known. Only http and https.\n"
            f"Empty: no button. {more}"
        ).rstrip(),
        "type": "string",
        "version_added": "0.1.0",
        "example": example,
        "default": "",
    }
