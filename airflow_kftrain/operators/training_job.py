"""What all operators of training jobs do: check at parse, submit, wait or defer, end.

Authors' values are kept as they were given. Airflow renders them in place, nouns among them, and
remembers by their identity what came from an XCom and is not to be rendered again. Specs and
settings are made from them when the task runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from airflow.sdk import BaseOperator

from airflow_kftrain.airflow_compat import default_deferrable, exceptions, is_unmapping
from airflow_kftrain.links import LINKS
from airflow_kftrain.specs.later import mask
from airflow_kftrain.specs.lifecycle import (
    Lifecycle,
    Links,
    Logs,
    check_lifecycle,
    check_links,
    check_logs,
)
from airflow_kftrain.specs.timeouts import Timeouts, check_timeouts
from airflow_kftrain.specs.values import flag, object_name, seconds, text

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_kftrain.hooks.training_job import TrainingJobHook
    from airflow_kftrain.messages import Outcome, WatchOrder
    from airflow_kftrain.operators.submission import Submitted
    from airflow_kftrain.operators.waiting import Waiting
    from airflow_kftrain.specs.env import Env
    from airflow_kftrain.specs.job import JobSpec
    from airflow_kftrain.specs.pods import Pod
    from airflow_kftrain.specs.policies import RunPolicy
    from airflow_kftrain.specs.raw_manifest import RawManifest
    from airflow_kftrain.specs.resources import Resources
    from airflow_kftrain.specs.values import Words

LONGEST_DEFERRAL = timedelta(days=30)
"""After which a task without an execution timeout is woken, since nothing may wait for ever."""

_AFTER_THE_DEADLINE = timedelta(seconds=60)
"""How much longer Airflow lets a task be deferred than its execution timeout: the trigger ends it
in time, and with a report; Airflow would only end it."""

_POLL_INTERVAL = timedelta(minutes=1)


class Settings(NamedTuple):
    """How the task treats its job: the author's values, checked."""

    namespace: Any
    connection: Any
    poll_interval: Any
    timeouts: Timeouts
    lifecycle: Lifecycle
    logs: Logs
    links: Links


class BaseTrainingJobOperator(BaseOperator):
    """A task that is a job on Kubernetes.

    :param namespace: Of the job. Left out: the connection's, else that of Airflow's own pod, else
        `default`.
    :param kubernetes_conn_id: Airflow's connection to the cluster. None: the cluster that Airflow
        runs in, else the kubeconfig of its user.
    :param deferrable: Hold no worker while the job runs: recommended. Left out, it is
        `[operators] default_deferrable` of Airflow's configuration, which is False by default.
    :param wait_for_completion: False: the task succeeds when the job is submitted. Nobody watches
        the job then, and nobody deletes it.
    :param poll_interval: Between looks where the connection may not watch, and between looks that
        make sure. Jobs are watched, not polled, so that it seldom matters.
    :param timeouts: How long a job may take to come up, and how long each trouble is borne.
    :param lifecycle: What the task does with its job, and how it ends itself.
    :param logs: What of the pods' logs stands in the task's log.
    :param links: URL templates of the task's buttons.
    """

    template_fields: Sequence[str] = (
        "namespace",
        "kubernetes_conn_id",
        "poll_interval",
        "timeouts",
        "lifecycle",
        "logs",
        "links",
    )
    operator_extra_links = LINKS
    ui_color = "#dbe9ff"

    spec_type: ClassVar[type[JobSpec] | type[RawManifest]]
    spec_fields: ClassVar[tuple[str, ...]] = ()

    _killed = False
    _waiting: Waiting | None = None

    def __init__(
        self,
        *,
        namespace: str | None = None,
        kubernetes_conn_id: str | None = "kubernetes_default",
        deferrable: bool | None = None,
        wait_for_completion: bool = True,
        poll_interval: timedelta = _POLL_INTERVAL,
        timeouts: Timeouts = Timeouts(),  # noqa: B008  # immutable
        lifecycle: Lifecycle = Lifecycle(),  # noqa: B008
        logs: Logs = Logs(),  # noqa: B008
        links: Links = Links(),  # noqa: B008
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.namespace = namespace
        self.kubernetes_conn_id = kubernetes_conn_id
        self.deferrable = default_deferrable() if deferrable is None else deferrable
        self.wait_for_completion = wait_for_completion
        self.poll_interval = poll_interval
        self.timeouts = timeouts
        self.lifecycle = lifecycle
        self.logs = logs
        self.links = links

    # At parse

    def check_at_parse(self) -> None:
        """Everything that is known already; each operator calls it when it has all its fields.
        Raises InvalidSpec. One of many mapped tasks is checked when it runs, since what is wrong
        with it then is no reason to try again."""
        if is_unmapping(self):
            return
        from airflow_kftrain.manifests import check_given

        self._settings(parsing=True)
        check_given(self.spec_type, self._given())

    def _given(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.spec_fields}

    def _settings(self, *, parsing: bool = False) -> Settings:
        def given(name: str) -> Any:
            value = getattr(self, name)
            return mask(value) if parsing else value

        flag("deferrable", self.deferrable)
        flag("wait_for_completion", self.wait_for_completion)
        namespace, connection = given("namespace"), given("kubernetes_conn_id")
        return Settings(
            namespace=None if namespace is None else object_name("namespace", namespace),
            connection=None if connection is None else text("kubernetes_conn_id", connection),
            poll_interval=seconds("poll_interval", given("poll_interval"), least=1),
            timeouts=check_timeouts("timeouts", given("timeouts")),
            lifecycle=check_lifecycle("lifecycle", given("lifecycle")),
            logs=check_logs("logs", given("logs")),
            links=check_links("links", given("links")),
        )

    def render_template(
        self, content: Any, context: Any, jinja_env: Any = None, seen_oids: Any = None
    ) -> Any:
        """Also what stands in the Kubernetes client's model objects, in a copy: Airflow leaves
        them alone, and tasks may share one."""
        attributes = getattr(content, "openapi_types", None)
        if not isinstance(attributes, dict):
            return super().render_template(content, context, jinja_env, seen_oids)
        from copy import copy

        rendered = copy(content)
        for name in attributes:
            value = getattr(content, name)
            if value is not None:
                inside = self.render_template(value, context, jinja_env, seen_oids)
                # Past the setter, which is for what authors write.
                setattr(rendered, f"_{name}", inside)
        return rendered

    # The job

    def spec(self) -> JobSpec | RawManifest:
        """The job as it was described, rendered and checked. Raises InvalidSpec."""
        return self.spec_type(**self._given())

    def ask_cluster(self, hook: TrainingJobHook) -> None:
        """Find out what the author left to the cluster."""

    def read_files(self, context: Any) -> None:
        """Put what files hold in the place of their paths, and render it if there is a context."""

    def dry_run(self) -> None:
        """Prints the manifest, as far as it is known without a run."""
        import sys

        from airflow_kftrain.manifests import build_manifest
        from airflow_kftrain.operators.showing import manifest_text

        self.read_files(None)
        sys.stdout.write(manifest_text(build_manifest(self.spec(), namespace=self.namespace)))

    # At work

    def execute(self, context: Context) -> Any:
        from airflow_kftrain.operators.ending import as_airflow_says

        with as_airflow_says():
            return self._execute(context)

    def _execute(self, context: Context) -> Any:
        from airflow_kftrain.operators.ending import delete, left_behind, left_to_a_retry
        from airflow_kftrain.operators.submission import submit_for

        settings = self._settings()
        submitted = submit_for(self, context, settings)
        order = submitted.order(settings, show_logs=settings.logs.waiting)
        if self._killed:
            left_behind(order, context, self.log)
        if not self.wait_for_completion:
            return None
        with left_to_a_retry(context, self.log, lambda: delete(order, self.log)):
            # There is nothing to wait for where the job of a try before is over; and a worker that
            # defers for a moment only may be taken for dead by Airflow.
            if self.deferrable and not submitted.ended:
                self._defer(order, settings)
            outcome = self._wait(submitted, order)
        if outcome is None:
            left_behind(order, context, self.log)
        return self._conclude(context, order, outcome)

    def _defer(self, order: WatchOrder, settings: Settings) -> None:
        from datetime import datetime, timezone

        from airflow_kftrain.airflow_compat import earliest_event
        from airflow_kftrain.links import link_templates
        from airflow_kftrain.triggers.training_job import TrainingJobTrigger

        now = datetime.now(timezone.utc)
        order = order._replace(
            show_logs=settings.logs.deferred, not_before=earliest_event(now), ordered=now
        )
        templates, _ = link_templates(settings.links)
        deadline = order.deadline
        patience = deadline - now + _AFTER_THE_DEADLINE if deadline else LONGEST_DEFERRAL
        self.defer(
            trigger=TrainingJobTrigger(order.to_dict(), templates),
            method_name="execute_complete",
            kwargs={"order": order.to_dict()},
            timeout=max(patience, _AFTER_THE_DEADLINE),
        )

    def _wait(self, submitted: Submitted, order: WatchOrder) -> Outcome | None:
        """How the job ended; None if this process is to end first."""
        from airflow_kftrain.operators.waiting import Waiting

        self._waiting = Waiting(order, self.log.info, submitted.keeper.pods_known)
        if self._killed:
            return None
        return self._waiting.watch()

    def execute_complete(
        self, context: Context, event: Any = None, order: Any = None, **_: Any
    ) -> Any:
        """Where a deferred task goes on. What it was given may be of another version of this
        package, and the event of a trigger that failed to tell."""
        from airflow_kftrain.messages import Outcome, WatchOrder
        from airflow_kftrain.operators.ending import as_airflow_says

        with as_airflow_says():
            # `dag.test()` comes back with the event alone.
            before = None if order else self._order_of_before(context)
            ordered = before or WatchOrder.from_dict(order)
            return self._conclude(context, ordered, Outcome.from_dict(event))

    def _conclude(self, context: Context, order: WatchOrder, outcome: Outcome) -> Any:
        from airflow_kftrain.operators.ending import (
            close,
            look_up,
            retry_remains,
            tell,
            value_or_error,
        )
        from airflow_kftrain.operators.showing import keeper_for

        settings = self._settings()
        found = look_up(order, outcome, self.log)
        if found is not None:
            keeper = keeper_for(context["ti"], settings.links, order.kind, found, self.log)
            keeper.store(outcome.pods, outcome.finished)
        tell(outcome, self.log)
        close(order, outcome, settings.lifecycle, retry_remains(context), self.log, found)
        return value_or_error(outcome, settings.lifecycle, self.log)

    # When it is not to go on

    def on_kill(self) -> None:
        """Only says so: this runs in the middle of whatever the task does, and may not ask
        anybody anything."""
        self._killed = True
        if self._waiting is not None:
            self._waiting.stop()

    def resume_execution(
        self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context
    ) -> Any:
        """Airflow wakes a task whose trigger failed, or was deferred for too long, only to fail
        it. Its job would train on."""
        known = exceptions()
        try:
            return super().resume_execution(next_method, next_kwargs, context)
        except known.TaskDeferralTimeout as error:
            return self._deferred_too_long(context, error)
        except known.TaskDeferralError:
            from airflow_kftrain.operators.ending import trigger_failed

            trigger_failed(self._order_of_before(context), context, self.log)
            raise

    def _deferred_too_long(self, context: Context, error: Exception) -> Any:
        """The job may have ended, and nobody told us; else it ends now."""
        from datetime import datetime, timezone

        from airflow_kftrain.operators.ending import as_airflow_says, delete
        from airflow_kftrain.operators.waiting import Waiting

        order = self._order_of_before(context)
        if order is None:
            raise error
        now = datetime.now(timezone.utc)
        order = order._replace(deadline=min(order.deadline or now, now))
        self._waiting = Waiting(order, self.log.info, None)
        outcome = self._waiting.watch()
        if outcome is None:
            raise error
        with as_airflow_says():
            if outcome.phase is not None and outcome.phase.is_final:
                return self._conclude(context, order, outcome)
            delete(order, self.log)
        raise type(error)(f"{error}\n{outcome.story}") from error

    def _order_of_before(self, context: Context) -> WatchOrder | None:
        """Airflow has thrown away what the task was deferred with; the XCom `job` tells which it
        is, and its annotations whether it is ours."""
        from airflow_kftrain.operators.submission import order_from_xcom

        order = order_from_xcom(self, context, self._settings())
        if order is None:
            self.log.warning("The XCom `job` is gone, so that the job cannot be looked up.")
        return order


class JobOperator(BaseTrainingJobOperator):
    """A job that is described in the author's words, not as a manifest."""

    spec_fields: ClassVar[tuple[str, ...]] = (
        "image",
        "command",
        "args",
        "env",
        "container_resources",
        "pod",
        "run_policy",
        "queue_name",
    )
    template_fields: Sequence[str] = (*spec_fields, *BaseTrainingJobOperator.template_fields)
    template_fields_renderers: ClassVar[dict[str, str]] = {
        "command": "py",
        "args": "py",
        "env": "py",
    }

    def __init__(
        self,
        *,
        image: str | None = None,
        command: Words | None = None,
        args: Words | None = None,
        env: Env | None = None,
        container_resources: Resources | Any | None = None,
        pod: Pod | None = None,
        run_policy: RunPolicy | None = None,
        queue_name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.image = image
        self.command = command
        self.args = args
        self.env = env
        self.container_resources = container_resources
        self.pod = pod
        self.run_policy = run_policy
        self.queue_name = queue_name
