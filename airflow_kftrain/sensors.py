"""TrainingJobSensor: waits for a job that someone else creates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseSensorOperator

from airflow_kftrain.airflow_compat import default_deferrable, exceptions, is_unmapping
from airflow_kftrain.errors import ClusterError, InvalidSpec, KfTrainError
from airflow_kftrain.kinds import KINDS, JobKind, JobReference, find_kind
from airflow_kftrain.links import DEFERRAL
from airflow_kftrain.specs.later import LATER, mask
from airflow_kftrain.specs.timeouts import Timeouts
from airflow_kftrain.specs.values import object_name, text

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_kftrain.messages import Outcome, WatchOrder

# Those who create the job decide how long it may take to start.
_PATIENT = Timeouts(*(None for _ in Timeouts._fields))


class TrainingJobSensor(BaseSensorOperator):
    """Succeeds when the job succeeds, and fails with a report when the job fails. The sensor also
    waits for a job that does not exist yet. It never changes the job.

    :param kind: The kind of the job, such as PyTorchJob.
    :param name: The name of the job.
    :param api_version: Required if the kind has several versions: MPIJob.
    :param namespace: The namespace of the job. Default: the connection's, else that of Airflow's
        own pod, else `default`.
    :param kubernetes_conn_id: Airflow's connection to the cluster. None: the cluster that Airflow
        runs in, else the kubeconfig of its user.
    :param deferrable: Hold no worker slot while the job runs. Recommended.
    """

    template_fields: Sequence[str] = (
        "kind",
        "name",
        "api_version",
        "namespace",
        "kubernetes_conn_id",
    )
    operator_extra_links = (DEFERRAL,)
    ui_color = "#dbe9ff"

    has_deferred = False
    _has_told = False

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
        try:
            super().__init__(**kwargs)
        except TypeError:
            from airflow_kftrain.operators.parameters import refuse_unknown

            refuse_unknown(type(self), kwargs)
            raise
        self.kind = kind
        self.name = name
        self.api_version = api_version
        self.namespace = namespace
        self.kubernetes_conn_id = kubernetes_conn_id
        self.deferrable = default_deferrable() if deferrable is None else deferrable
        if not is_unmapping(self):
            self._checked(*(mask(getattr(self, name)) for name in self.template_fields))

    @classmethod
    def partial(cls, **kwargs: Any) -> Any:
        from airflow_kftrain.operators.parameters import answering_partial

        return answering_partial(cls, super().partial, kwargs)

    def _checked(
        self, kind: Any, name: Any, api_version: Any, namespace: Any, connection: Any
    ) -> JobKind | None:
        """The kind of the job, if it is known."""
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
                f"is required for {kind}, which has several versions",
                advice=f"Use {' or '.join(repr(row.api_version) for row in served)}.",
            )
        return served[0] if served else find_kind("", kind)

    def execute(self, context: Context) -> Any:
        from airflow_kftrain.operators.ending import as_airflow_says
        from airflow_kftrain.operators.submission import deadline_of

        if not self.deferrable:
            with self._saying_what_is_missing():
                return super().execute(context)
        with as_airflow_says():
            order = self._order()
        # On the worker Airflow enforces it.
        deadline = deadline_of(context["ti"], self.execution_timeout)
        cluster = self._cluster(order.connection)
        return self._defer(order._replace(deadline=deadline, cluster=cluster))

    @contextmanager
    def _saying_what_is_missing(self) -> Iterator[None]:
        """Adds the missing job to Airflow's error for a timeout, which names only seconds."""
        try:
            yield
        except exceptions().AirflowSensorTimeout as error:
            missing = self._missing()
            if missing:
                raise type(error)(f"{missing} has not appeared. {error}") from error
            raise

    def _missing(self) -> str:
        """The job, if it does not exist; "" if it does, or if that is not known."""
        from airflow_kftrain.hooks.training_job import TrainingJobHook

        try:
            order = self._order()
            hook = TrainingJobHook(order.connection)
            found = hook.get(order.kind, order.job.namespace, order.job.name)
        except KfTrainError:
            return ""
        return "" if found else _title(order)

    def _cluster(self, connection: str | None) -> str:
        """Passed on, so that the triggerer looks where the connection leads now and not where it
        once led."""
        from airflow_kftrain.hooks.training_job import TrainingJobHook

        try:
            return TrainingJobHook(connection).cluster()
        except ClusterError:
            return ""  # if the triggerer cannot use the connection either, it says why

    def _defer(self, order: WatchOrder) -> None:
        from airflow_kftrain.triggers.training_job import TrainingJobTrigger

        self.has_deferred = True
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
        from airflow_kftrain.watching.course import missing_words

        with as_airflow_says():
            order = self._order()
            hook = TrainingJobHook(order.connection)
            try:
                found = hook.get(order.kind, order.job.namespace, order.job.name)
            except ClusterError as error:
                if not error.retryable:
                    raise
                self.log.warning("%s The job may still be running; waiting for the cluster.", error)
                return False
            if found is None and not self._has_told:
                self._has_told = True
                self.log.info("%s", missing_words(_title(order)))
            if found is None or not read_state(order.kind, found).phase.is_final:
                return False
        outcome = Waiting(order, self.log.info, None).watch()
        if outcome is not None:
            self._conclude(outcome)
        return outcome is not None

    def resume_execution(
        self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context
    ) -> Any:
        with self._saying_what_is_missing():
            return super().resume_execution(next_method, next_kwargs, context)

    def execute_complete(self, context: Context, event: Any = None, **_: Any) -> None:
        from airflow_kftrain.messages import Outcome

        self._conclude(Outcome.from_dict(event))

    def _conclude(self, outcome: Outcome) -> None:
        from airflow_kftrain.monitoring.decisions import Verdict
        from airflow_kftrain.operators.ending import headline, tell

        tell(outcome, self.log)
        if outcome.verdict is Verdict.SUCCEEDED:
            return
        text = headline(outcome)
        if outcome.verdict is Verdict.TIMED_OUT:
            raise exceptions().AirflowTaskTimeout(text)
        if outcome.phase is not None and outcome.phase.is_final:
            # It stays the same, however often it is read.
            raise exceptions().AirflowFailException(text)
        raise exceptions().AirflowException(text)

    def _order(self) -> WatchOrder:
        from airflow_kftrain.hooks.training_job import TrainingJobHook
        from airflow_kftrain.messages import WatchOrder

        kind = self._checked(*(getattr(self, field) for field in self.template_fields))
        assert kind is not None  # only templates are still unknown
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


def _title(order: WatchOrder) -> str:
    return f"{order.job.kind} {order.job.namespace}/{order.job.name}"
