"""Ways to bring a program into the pods; the one by files is in recipe_code_files.py."""

from __future__ import annotations

from airflow.sdk import DAG

from airflow_kftrain import Container, Pod, PyTorchJobOperator

with DAG("recipe_code", schedule=None) as dag:
    # --8<-- [start:image]
    PyTorchJobOperator(
        task_id="image",
        image="registry.example.com/team/train:1.4",  # contains /app/train.py
        command=["python", "train.py"],
        container=Container(working_dir="/app"),
        workers=2,
        deferrable=True,
    )
    # --8<-- [end:image]

    # --8<-- [start:git]
    code = {"name": "code", "mountPath": "/code"}
    clone = {
        "name": "clone",
        "image": "alpine/git:2.49.1",
        "args": ["clone", "--depth=1", "--branch=v1.4", "https://git.example.com/train", "/code"],
        "volumeMounts": [code],
    }
    PyTorchJobOperator(
        task_id="git",
        image="pytorch/pytorch:2.9.0-cuda12.8-cudnn9-runtime",
        command=["python", "train.py"],
        container=Container(working_dir="/code"),
        pod=Pod(
            volumes=[{"name": "code", "emptyDir": {}}],
            volume_mounts=[code],
            init_containers=[clone],
        ),
        workers=2,
        deferrable=True,
    )
    # --8<-- [end:git]

    # --8<-- [start:volume]
    PyTorchJobOperator(
        task_id="volume",
        image="pytorch/pytorch:2.9.0-cuda12.8-cudnn9-runtime",
        command=["python", "train.py"],
        container=Container(working_dir="/code"),
        pod=Pod(
            volumes=[{"name": "code", "persistentVolumeClaim": {"claimName": "team-code"}}],
            volume_mounts=[{"name": "code", "mountPath": "/code", "readOnly": True}],
        ),
        workers=2,
        deferrable=True,
    )
    # --8<-- [end:volume]
