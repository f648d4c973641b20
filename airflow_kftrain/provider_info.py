"""What Airflow reads to learn that this package is a provider, in every process it starts."""

from __future__ import annotations

from typing import Any


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
                "integration-name": "Kubeflow Trainer",
                "external-doc-url": "https://www.kubeflow.org/docs/components/trainer/",
                "tags": ["software"],
            }
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
                            "are no longer taken for one's own.\n"
                            "Empty: host, port and path of ``[api] base_url``, or "
                            "``localhost:8080`` if that is not set either."
                        ),
                        "type": "string",
                        "version_added": "0.1.0",
                        "example": "ml-production",
                        "default": "",
                    },
                },
            },
        },
    }
