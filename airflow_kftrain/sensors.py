"""TrainingJobSensor: waits for a job that somebody else made."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseSensorOperator

from airflow_kftrain.airflow_compat import (
    default_deferrable,
    earliest_event,
    exceptions,
    is_unmapping,
)
from airflow_kftrain.errors import ClusterError, InvalidSpec
from airflow_kftrain.kinds import KINDS, JobKind, JobReference, find_kind
from airflow_kftrain.specs.later import LATER, mask
from airflow_kftrain.specs.timeouts import Timeouts
from airflow_kftrain.specs.values import object_name, text

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_kftrain.messages import Outcome, WatchOrder

# How long a job may take to come up is for those to say who made it.
_PATIENT = Timeouts(*(None for _ in Timeouts._fields))


class TrainingJobSensor(BaseSensorOperator):
    """Succeeds when the job does, and fails with a report when that fails. A job that is not there
    yet is waited for. The job itself is left alone, whatever happens.

    :param kind: Such as PyTorchJob.
    :param name: Of the job.
    :param api_version: Where a kind has several: MPIJob.
    :param namespace: Left out: the connection's, else that of Airflow's own pod, else `default`.
    :param kubernetes_conn_id: Airflow's connection to the cluster. None: the cluster that Airflow
        runs in, else the kubeconfig of its user.
    :param deferrable: Hold no worker while the job runs: recommended.
    """

    template_fields: Sequence[str] = (
        "kind",
        "name",
        "api_version",
        "namespace",
        "kubernetes_conn_id",
    )
    ui_color = "#dbe9ff"

    def __init__(
        self,
        *,
        kind: str,
        name: str,
        api_version: str | None = None,
        namespace: str | None = None,
        kubernetes_conn_id: str | None = "kubernetes_default",
        deferrable: bool | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.kind = kind
        self.name = name
        self.api_version = api_version
        self.namespace = namespace
        self.kubernetes_conn_id = kubernetes_conn_id
        self.deferrable = default_deferrable() if deferrable is None else deferrable
        if not is_unmapping(self):
            self._checked(*(mask(getattr(self, name)) for name in self.template_fields))

    def _checked(
        self, kind: Any, name: Any, api_version: Any, namespace: Any, connection: Any
    ) -> JobKind | None:
        """The kind of the job, if it is known yet."""
        text("name", name)
        if namespace is not None:
            object_name("namespace", namespace)
        if connection is not None:
            text("kubernetes_conn_id", connection)
        if LATER in (kind, api_version):
            return None
        if api_version is not None:
            return find_kind(api_version, kind)
        served = [row for row in KINDS if row.kind == kind]
        if len(served) > 1:
            raise InvalidSpec(
                "api_version",
                f"must be given for {kind}, of which there are several",
                advice=f"Write {' or '.join(repr(row.api_version) for row in served)}.",
            )
        return served[0] if served else find_kind("", kind)

    def execute(self, context: Context) -> Any:
        from airflow_kftrain.operators.ending import as_airflow_says
        from airflow_kftrain.operators.submission import deadline_of

        if not self.deferrable:
            return super().execute(context)
        with as_airflow_says():
            order = self._order()
        # On the worker Airflow sees to it itself.
        deadline = deadline_of(context["ti"], self.execution_timeout)
        return self._defer(order._replace(deadline=deadline))

    def _defer(self, order: WatchOrder) -> None:
        from airflow_kftrain.triggers.training_job import TrainingJobTrigger

        order = order._replace(not_before=earliest_event(datetime.now(timezone.utc)))
        self.defer(
            trigger=TrainingJobTrigger(order.to_dict()),
            method_name="execute_complete",
            timeout=timedelta(seconds=self.timeout),
        )

    def poke(self, context: Context) -> bool:
        from airflow_kftrain.hooks.training_job import TrainingJobHook
        from airflow_kftrain.job_state import read_state
        from airflow_kftrain.operators.ending import as_airflow_says
        from airflow_kftrain.operators.waiting import Waiting

        with as_airflow_says():
            order = self._order()
            hook = TrainingJobHook(order.connection)
            try:
                found = hook.get(order.kind, order.job.namespace, order.job.name)
            except ClusterError as error:
                if not error.retryable:
                    raise
                self.log.warning("%s The job may well go on; waiting for the cluster.", error)
                return False
            if found is None or not read_state(order.kind, found).phase.is_final:
                return False
        outcome = Waiting(order, self.log.info, None).watch()
        if outcome is not None:
            self._conclude(outcome)
        return outcome is not None

    def execute_complete(self, context: Context, event: Any = None, **_: Any) -> None:
        from airflow_kftrain.messages import Outcome

        self._conclude(Outcome.from_dict(event))

    def _conclude(self, outcome: Outcome) -> None:
        from airflow_kftrain.monitoring.decisions import Verdict
        from airflow_kftrain.operators.ending import tell

        tell(outcome, self.log)
        if outcome.verdict is Verdict.SUCCEEDED:
            return
        report = outcome.story
        if outcome.verdict is Verdict.TIMED_OUT:
            raise exceptions().AirflowTaskTimeout(report)
        if outcome.phase is not None and outcome.phase.is_final:
            # It stays as it is, however often one looks.
            raise exceptions().AirflowFailException(report)
        raise exceptions().AirflowException(report)

    def _order(self) -> WatchOrder:
        from airflow_kftrain.hooks.training_job import TrainingJobHook
        from airflow_kftrain.messages import WatchOrder

        kind = self._checked(*(getattr(self, field) for field in self.template_fields))
        assert kind is not None  # only templates are not known yet
        connection = self.kubernetes_conn_id
        namespace = self.namespace or TrainingJobHook(connection).namespace()
        return WatchOrder(
            job=JobReference(kind.kind, namespace, self.name, ""),
            api_version=kind.api_version,
            connection=connection,
            timeouts=_PATIENT,
            poll_interval=float(self.poke_interval),
            ordered=datetime.now(timezone.utc),
        )
