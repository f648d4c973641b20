"""Two nodes with eight GPUs each, one process for each GPU."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG

from airflow_kftrain import Elastic, Placement, Pod, PyTorchJobOperator, Resources, Timeouts

with DAG("recipe_gpus", schedule=None) as dag:
    PyTorchJobOperator(
        task_id="train",
        image="registry.example.com/team/train:1.4",
        command=["python", "train.py"],  # under torchrun
        elastic=Elastic(nodes=2, nproc_per_node=8),
        container_resources=Resources(cpu=64, memory="512Gi", gpu=8),
        env={"NCCL_DEBUG": "WARN"},
        pod=Pod(
            shared_memory="64Gi",
            placement=Placement(
                node_selector={"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"},
                tolerations=[
                    {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
                ],
            ),
        ),
        timeouts=Timeouts(unschedulable=timedelta(hours=1)),
        deferrable=True,
    )
