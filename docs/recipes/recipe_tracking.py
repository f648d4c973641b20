"""Runs in W&B and in MLflow: one for all tries of a task, with a button in Airflow."""

from __future__ import annotations

from airflow.sdk import DAG, task

from airflow_kftrain import FromSecret, Links

with DAG("recipe_tracking", schedule=None) as dag:
    # --8<-- [start:wandb]
    @task.pytorch(
        image="registry.example.com/team/train:1.4",  # with torch and wandb
        workers=2,
        env={"WANDB_API_KEY": FromSecret("wandb", "api-key")},
        links=Links(dashboard="https://wandb.ai/team/churn/runs/{identity}"),
        deferrable=True,
    )
    def with_wandb(epochs: int) -> float:
        import os

        import wandb

        loss = 1.0
        mode = None if os.environ["RANK"] == "0" else "disabled"  # one run, of rank 0
        run_id = os.environ["KFTRAIN_RUN_ID"]  # {identity}: a retry continues this run
        with wandb.init(project="churn", id=run_id, resume="allow", mode=mode) as run:
            for epoch in range(epochs):
                loss /= 2
                run.log({"epoch": epoch, "loss": loss})
        return loss

    with_wandb(10)
    # --8<-- [end:wandb]

    # --8<-- [start:mlflow]
    @task.pytorch(
        image="registry.example.com/team/train:1.4",  # with torch and mlflow
        workers=2,
        env={"MLFLOW_TRACKING_URI": "https://mlflow.example.com"},
        links=Links(
            dashboard="https://mlflow.example.com/#/experiments/7"
            "?searchFilter=attributes.run_name%3D%22{identity}%22&startTime=ALL"
        ),
        deferrable=True,
    )
    def with_mlflow(epochs: int) -> float:
        import os

        import mlflow

        loss = 1.0
        losses = []
        for _ in range(epochs):
            loss /= 2
            losses.append(loss)
        if os.environ["RANK"] == "0":
            name = os.environ["KFTRAIN_RUN_ID"]  # {identity}: a retry continues this run
            mlflow.set_experiment("churn")
            found = mlflow.search_runs(
                filter_string=f"attributes.run_name = '{name}'", output_format="list"
            )
            run_id = found[0].info.run_id if found else None
            with mlflow.start_run(run_id=run_id, run_name=name):
                for step, value in enumerate(losses):
                    mlflow.log_metric("loss", value, step=step)
        return loss

    with_mlflow(10)
    # --8<-- [end:mlflow]
