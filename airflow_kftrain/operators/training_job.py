"""What all operators of training jobs do: check when the DAG file is parsed, submit, wait or defer,
end.

The parameters are stored as they were given. Airflow renders them in place, including nouns, and
remembers by object identity which values come from an XCom and must not be rendered again. Specs
and settings are created from them when the task runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk import BaseOperator

from airflow_kftrain.airflow_compat import (
    bundle_of,
    default_deferrable,
    exceptions,
    is_resumed,
    is_unmapping,
)
from airflow_kftrain.links import DEFERRAL, LINKS
from airflow_kftrain.manifests.identity import (
    BUNDLE_ANNOTATION,
    BUNDLE_VERSION_ANNOTATION,
    UNATTENDED_ANNOTATION,
)
from airflow_kftrain.operators.settings import SETTINGS, SWITCHES, Settings, check_settings
from airflow_kftrain.specs.lifecycle import Lifecycle, Links, Logs
from airflow_kftrain.specs.timeouts import Timeouts

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_kftrain.hooks.training_job import TrainingJobHook
    from airflow_kftrain.job_state import JobState
    from airflow_kftrain.loops import Interruptible
    from airflow_kftrain.messages import Outcome, WatchOrder
    from airflow_kftrain.operators.cleanup import Cleanup
    from airflow_kftrain.operators.submission import Submitted
    from airflow_kftrain.operators.waiting import Waiting
    from airflow_kftrain.specs.code import Code
    from airflow_kftrain.specs.containers import Container
    from airflow_kftrain.specs.env import Env
    from airflow_kftrain.specs.job import JobSpec
    from airflow_kftrain.specs.pods import Pod
    from airflow_kftrain.specs.policies import RunPolicy
    from airflow_kftrain.specs.raw_manifest import RawManifest
    from airflow_kftrain.specs.resources import Resources
    from airflow_kftrain.specs.values import Words

LONGEST_DEFERRAL = timedelta(days=30)
"""When to resume a deferred task without an execution timeout, since nothing may wait for ever."""

_AFTER_THE_DEADLINE = timedelta(seconds=60)
"""How much longer than its execution timeout a task may be deferred. The trigger ends it in time
and with a report; Airflow would only end it."""

_POLL_INTERVAL = timedelta(minutes=1)
_UNTIL_PODS_ARE_GONE = 120.0
"""Seconds in addition to their grace period."""


class BaseTrainingJobOperator(BaseOperator):
    """A task that is a job on Kubernetes.

    :param namespace: The namespace of the job. Default: the connection's, else that of Airflow's
        own pod, else `default`.
    :param kubernetes_conn_id: Airflow's connection to the cluster. None: the cluster that Airflow
        runs in, else the kubeconfig of its user.
    :param deferrable: Hold no worker slot while the job runs. Recommended. Default:
        `[operators] default_deferrable` of Airflow's configuration, which is False by default.
    :param wait_for_completion: False: the task succeeds as soon as the job is submitted. Then
        nothing watches or deletes the job.
    :param poll_interval: How often the job is read if the connection may not watch it, and how
        often a watched job is checked. Jobs are watched, not polled, so this rarely matters.
    :param timeouts: How long the job may take to start, and how long each trouble may last.
    :param lifecycle: What the task does with its job, and how the task ends.
    :param logs: Which logs of the pods appear in the task's log.
    :param links: URL templates of the task's buttons.
    """

    template_fields: Sequence[str] = SETTINGS
    operator_extra_links = (*LINKS, DEFERRAL)
    ui_color = "#dbe9ff"

    spec_type: ClassVar[type[JobSpec] | type[RawManifest]]
    spec_fields: ClassVar[tuple[str, ...]] = ()

    has_deferred = False
    is_killed = False
    _waiting: Waiting | None = None
    _calls: Interruptible | None = None

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
        if kwargs.get("resources") is not None and not is_unmapping(self):
            from airflow_kftrain.operators.parameters import refuse_resources

            refuse_resources(type(self))
        try:
            super().__init__(**kwargs)
        except TypeError:
            from airflow_kftrain.operators.parameters import refuse_unknown

            refuse_unknown(type(self), kwargs)
            raise
        self.namespace = namespace
        self.kubernetes_conn_id = kubernetes_conn_id
        self.deferrable = default_deferrable() if deferrable is None else deferrable
        self.wait_for_completion = wait_for_completion
        self.poll_interval = poll_interval
        self.timeouts = timeouts
        self.lifecycle = lifecycle
        self.logs = logs
        self.links = links

    @classmethod
    def partial(cls, **kwargs: Any) -> Any:
        from airflow_kftrain.operators.parameters import answering_partial

        return answering_partial(cls, super().partial, kwargs)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """If a subclass sets its own links, the link without a button is added: it is always
        required."""
        super().__init_subclass__(**kwargs)
        own = cls.__dict__.get("operator_extra_links")
        if isinstance(own, list | tuple) and DEFERRAL not in own:
            cls.operator_extra_links = (*own, DEFERRAL)

    # When the DAG file is parsed

    def check_at_parse(self) -> None:
        """Checks everything that is known already. Each operator calls it when it has all its
        fields. Raises InvalidSpec. For one of many mapped tasks the checks are made when it runs,
        and then an error must not lead to a retry."""
        if is_unmapping(self):
            return
        from airflow_kftrain.operators.parsing import check_parameters

        given = self._given(), self._given_settings()
        for warning in check_parameters(self.spec_type, *given):
            from airflow_kftrain.operators.parameters import warn_author

            warn_author(warning)

    def _given(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.spec_fields}

    def _given_settings(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in (*SETTINGS, *SWITCHES)}

    def _settings(self) -> Settings:
        return check_settings(self._given_settings())

    def render_template(
        self, content: Any, context: Any, jinja_env: Any = None, seen_oids: Any = None
    ) -> Any:
        """Also renders the content of model objects of the Kubernetes client, in a copy: Airflow
        does not, and several tasks may share one object."""
        attributes = getattr(content, "openapi_types", None)
        if not isinstance(attributes, dict):
            return super().render_template(content, context, jinja_env, seen_oids)
        from copy import copy

        rendered = copy(content)
        for name in attributes:
            value = getattr(content, name)
            if value is not None:
                inside = self.render_template(value, context, jinja_env, seen_oids)
                # Without the setter, which checks the author's values.
                setattr(rendered, f"_{name}", inside)
        return rendered

    def _do_render_template_fields(
        self, parent: Any, template_fields: Iterable[str], context: Any, *args: Any, **kwargs: Any
    ) -> None:
        """Airflow calls this for a mapped task, too, and then stores the fields for the Rendered
        tab. In a worker that resumes the task, they must not replace those of `show_rendered`."""
        super()._do_render_template_fields(parent, template_fields, context, *args, **kwargs)
        if parent is self and is_resumed(context):
            self.template_fields = ()

    # The job

    def spec(self) -> JobSpec | RawManifest:
        """The job as described, rendered and checked. Raises InvalidSpec."""
        return self.spec_type(**self._given())

    def ask_cluster(self, hook: TrainingJobHook) -> None:
        """Finds out what only the cluster can say."""

    def read_files(self, context: Any) -> None:
        """Replaces paths by the content of their files, which is rendered if there is a context."""

    def hidden_texts(self) -> Iterable[str]:
        """Texts that the pods get and the manifest does not show."""
        return ()

    def files_folder(self) -> str:
        """The folder of the DAG file, where relative paths start."""
        dag: Any = self.get_dag()
        return str(dag.folder) if dag else "."

    def dry_run(self) -> None:
        """Prints the manifest, as far as it is known without a run."""
        import sys

        from airflow_kftrain.manifests import build_manifest
        from airflow_kftrain.operators.showing import manifest_text

        self.read_files(None)
        manifest = build_manifest(
            self.spec(),
            namespace=self.namespace,
            folder=self.files_folder(),
            grace=self._settings().lifecycle.grace,
        )
        sys.stdout.write(manifest_text(manifest, whole=True))

    # When the task runs

    def execute(self, context: Context) -> Any:
        from airflow_kftrain.operators.ending import as_airflow_says

        with as_airflow_says():
            return self._execute(context)

    def _execute(self, context: Context, before: WatchOrder | None = None) -> Any:
        """`before` is the order of the job that runs again."""
        from airflow_kftrain.operators.ending import delete, left_behind, left_to_a_retry

        settings = self._settings()
        submitted = self._submit(context, settings, before)
        order = submitted.order(settings, show_logs=settings.logs.waiting)
        if self.is_killed:
            left_behind(order, context, self.log)
        if not self.wait_for_completion:
            return None
        try:
            with left_to_a_retry(context, self.log, lambda: delete(order, self.log)):
                # If the job of an earlier try has finished, there is nothing to wait for. A task
                # that defers only for a moment may be failed by Airflow.
                if self.deferrable and not submitted.ended:
                    self._defer(order, settings, submitted.keeper.templates)
                outcome = self._wait(submitted, order)
        except exceptions().TaskDeferred:
            if self.is_killed:
                left_behind(order, context, self.log)
            raise
        if outcome is None:
            left_behind(order, context, self.log)
        return self._conclude(context, order, outcome)

    def _submit(self, context: Context, settings: Settings, before: WatchOrder | None) -> Submitted:
        """Submits the job for this try, and stores its XComs."""
        from airflow_kftrain.hooks.training_job import TrainingJobHook
        from airflow_kftrain.manifests import build_manifest
        from airflow_kftrain.operators.showing import masked_texts, show_manifest, show_rendered
        from airflow_kftrain.operators.submission import deadline_of, owner_of, submit

        hook = TrainingJobHook(settings.connection, self.interruptible())
        earlier = before.earlier if before else ()
        owner = owner_of(context, self.retries)._replace(generation=len(earlier))
        self.read_files(context)
        self.ask_cluster(hook)
        manifest = build_manifest(
            self.spec(),
            owner=owner,
            folder=self.files_folder(),
            grace=settings.lifecycle.grace,
        )
        metadata = manifest["metadata"]
        metadata["namespace"] = settings.namespace or metadata.get("namespace") or hook.namespace()
        of_bundle = (BUNDLE_ANNOTATION, BUNDLE_VERSION_ANNOTATION)
        said = zip(of_bundle, bundle_of(context["ti"]), strict=True)
        metadata["annotations"] |= {key: text for key, text in said if text}
        if not self.wait_for_completion:
            # Nobody watches it, so the sweeper must not take it for an orphan.
            metadata["annotations"][UNATTENDED_ANNOTATION] = "true"
        show_manifest(manifest, self.log)
        parameters = {name: getattr(self, name) for name in self.template_fields}
        show_rendered(parameters, manifest, self.log)
        masked = masked_texts(manifest, self.log, self.hidden_texts())
        # The execution timeout counts over all jobs of a try.
        deadline = before.deadline if before else deadline_of(context["ti"], self.execution_timeout)
        return submit(hook, manifest, masked, context, owner, deadline, settings, self.log, earlier)

    def _defer(self, order: WatchOrder, settings: Settings, links: dict[str, str]) -> None:
        from datetime import datetime, timezone

        from airflow_kftrain.triggers.training_job import TrainingJobTrigger

        now = datetime.now(timezone.utc)
        order = order._replace(show_logs=settings.logs.deferred, ordered=now)
        deadline = order.deadline
        patience = deadline - now + _AFTER_THE_DEADLINE if deadline else LONGEST_DEFERRAL
        self.has_deferred = True
        self.defer(
            trigger=TrainingJobTrigger(order.to_dict(), links),
            method_name="execute_complete",
            kwargs={"order": order.to_dict()},
            timeout=max(patience, _AFTER_THE_DEADLINE),
        )

    def _wait(self, submitted: Submitted, order: WatchOrder) -> Outcome | None:
        """How the job ended; None if this process has to exit first."""
        from airflow_kftrain.operators.waiting import Waiting

        # Airflow masks what this process has read itself.
        unmasked = order._replace(masked=())
        self._waiting = Waiting(
            unmasked, self.log.info, submitted.keeper.pods_known, submitted.keeper.show
        )
        if self.is_killed:
            return None
        return self._waiting.watch()

    def execute_complete(
        self, context: Context, event: Any = None, order: Any = None, **_: Any
    ) -> Any:
        """Resumes a deferred task. Order and event may come from another version of this package,
        or from a trigger that has failed."""
        from airflow_kftrain.messages import Outcome, WatchOrder
        from airflow_kftrain.operators.ending import as_airflow_says

        with as_airflow_says():
            # `dag.test()` passes only the event.
            before = None if order else self._order_of_before(context)
            ordered = before or WatchOrder.from_dict(order)
            if ordered.owner not in ("", str(context["ti"].id)):
                # Airflow 3.1.0 resumes a retry with the event of the earlier try.
                return self._execute(context)
            return self._conclude(context, ordered, Outcome.from_dict(event))

    def _conclude(self, context: Context, order: WatchOrder, outcome: Outcome) -> Any:
        from airflow_kftrain.operators.cleanup import Cleanup
        from airflow_kftrain.operators.ending import NoValue, when_accepted

        settings = self._settings()
        cleanup = Cleanup(order, self.log)
        if outcome.disruption:
            return self._run_again(context, order, outcome, cleanup, settings)
        try:
            found, outcome = self._settle(context, order, outcome, cleanup, settings.links)
        except exceptions().AirflowTaskTimeout:
            # Airflow's timeout, which comes only once. What the job did counts before the clock,
            # and an unfinished job has to be deleted.
            found, outcome = self._settle(context, order, outcome, cleanup, settings.links)
        on_finish = str(settings.lifecycle.on_finish)
        try:
            value = self.value_of(order, outcome, settings.lifecycle)
        except BaseException as error:
            if not self.is_killed:
                kept = isinstance(error.__cause__, NoValue)
                cleanup.close(found, "keep" if kept else on_finish)
            raise
        if self.outlets:
            from airflow_kftrain.operators.lineage import tell_assets

            tell_assets(context, order, found, value, self.log)
        when_accepted(self, lambda: self.is_killed, lambda: cleanup.close(found, on_finish))
        return value

    def _run_again(
        self,
        context: Context,
        order: WatchOrder,
        outcome: Outcome,
        cleanup: Cleanup,
        settings: Settings,
    ) -> Any:
        """The same try, with a new job, since the cluster has ended this one."""
        from airflow_kftrain.operators.ending import left_behind

        self.log.warning("%s", outcome.story)
        cleanup.close(cleanup.find(), str(settings.lifecycle.on_finish))
        patience = _UNTIL_PODS_ARE_GONE + float(settings.lifecycle.grace or 0)  # type: ignore[arg-type]  # checked
        cleanup.await_pods(patience, lambda: self.is_killed)
        if self.is_killed:
            left_behind(order, context, self.log)
        before = order._replace(earlier=(*order.earlier, outcome.disruption))
        self.log.info(
            "System retry %d of %d: %s.",
            before.generation,
            order.system_retries,
            outcome.disruption,
        )
        return self._execute(context, before)

    def value_of(self, order: WatchOrder, outcome: Outcome, lifecycle: Lifecycle) -> Any:
        """The task's return value, or the exception that says why there is none."""
        from airflow_kftrain.operators.ending import value_or_error

        return value_or_error(outcome, lifecycle, self.log)

    def _settle(
        self,
        context: Context,
        order: WatchOrder,
        outcome: Outcome,
        cleanup: Cleanup,
        links: Links,
    ) -> tuple[dict[str, Any] | None, Outcome]:
        """Ends an unfinished job, stores the links and logs the report. Returns the job, if it
        still exists, and how it ended."""
        from airflow_kftrain.job_state import Phase
        from airflow_kftrain.operators.ending import tell
        from airflow_kftrain.operators.showing import keeper_for

        found = None if outcome.phase is Phase.GONE else cleanup.find()
        if found is not None and not (outcome.phase and outcome.phase.is_final):
            found = self._end_living(context, order, outcome, cleanup, found)
            if found is not None:
                outcome = self._seen_again(order, cleanup.state(found))
        if found is not None:
            keeper = keeper_for(context["ti"], links, order.kind, found, self.log)
            keeper.store(outcome.pods, outcome.finished)
        tell(outcome, self.log)
        return found, outcome

    def _end_living(
        self,
        context: Context,
        order: WatchOrder,
        outcome: Outcome,
        cleanup: Cleanup,
        found: dict[str, Any],
    ) -> dict[str, Any] | None:
        """Deletes an unfinished job after our own verdict, whatever `on_finish` says. If it has
        finished since then, it is returned."""
        from airflow_kftrain.operators.ending import left_behind, retry_remains

        if not cleanup.state(found).phase.is_final:
            if self.is_killed:
                left_behind(order, context, self.log)
            if outcome.phase is None and outcome.retryable and retry_remains(context):
                self.log.info(
                    "The state of the job is unknown: the next try reads it, and adopts the job."
                )
                return None
        return cleanup.end(found)

    def _seen_again(self, order: WatchOrder, state: JobState) -> Outcome:
        """How the job ended after our verdict that its time was up: what has happened counts before
        the clock. If it cannot be watched any more, its last state decides."""
        from airflow_kftrain.job_state import Phase
        from airflow_kftrain.messages import Outcome
        from airflow_kftrain.monitoring.decisions import judge

        outcome = self._watch_to_the_end(order)
        if outcome is not None and outcome.phase in (Phase.SUCCEEDED, Phase.FAILED):
            return outcome
        said = judge(order.kind, state, ())
        return Outcome(
            said.verdict,
            said.reason,
            said.words,
            said.words,
            phase=state.phase,
            fault=said.fault,
            retryable=said.retryable,
            finished=state.finished,
        )

    def _watch_to_the_end(self, order: WatchOrder) -> Outcome | None:
        """How the job has ended or stands now. It does not wait, so SIGTERM does not stop it."""
        from datetime import datetime, timezone

        from airflow_kftrain.operators.waiting import Waiting

        now = datetime.now(timezone.utc)
        deadline = min(order.deadline or now, now)
        order = order._replace(deadline=deadline, show_logs="off")
        return Waiting(order, self.log.info, None).watch()

    # When the task is ended

    def on_kill(self) -> None:
        """Remembers the kill, and ends a wait or a call of the submission. It runs in a signal
        handler, in the middle of anything, so it makes no calls itself."""
        self.is_killed = True
        if self._waiting is not None:
            self._waiting.stop()
        if self._calls is not None:
            self._calls.interrupt()

    def interruptible(self) -> Interruptible:
        """The calls that `on_kill` may cancel."""
        from airflow_kftrain.loops import Interruptible

        self._calls = Interruptible(is_due=self.is_killed)
        return self._calls

    def resume_execution(
        self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context
    ) -> Any:
        """Airflow resumes a task whose trigger has failed, or which was deferred for too long, only
        to fail it. Its job would continue to train."""
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
        """The job may have ended without our knowledge; otherwise it is ended now."""
        from airflow_kftrain.operators.ending import as_airflow_says

        order = self._order_of_before(context)
        outcome = order and self._watch_to_the_end(order)
        if order is None or outcome is None:
            raise error
        try:
            with as_airflow_says():
                return self._conclude(context, order, outcome)
        except exceptions().AirflowTaskTimeout as timeout:
            raise type(error)(f"{error}\n{timeout}") from error

    def _order_of_before(self, context: Context) -> WatchOrder | None:
        """Airflow does not pass on the order of the deferral. The XCom `job` says which job it is,
        and the job's annotations whether it is ours."""
        from airflow_kftrain.operators.submission import deadline_of, order_from_xcom, owner_of

        owner = owner_of(context, self.retries)
        deadline = deadline_of(context["ti"], self.execution_timeout)
        order = order_from_xcom(context["ti"], owner, deadline, self._settings())
        if order is None:
            self.log.warning("The XCom `job` is missing, so the job cannot be found.")
        return order


class JobOperator(BaseTrainingJobOperator):
    """The operators whose job is described by fields and not by a manifest."""

    spec_fields: ClassVar[tuple[str, ...]] = (
        "image",
        "command",
        "args",
        "env",
        "container_resources",
        "pod",
        "container",
        "run_policy",
        "queue_name",
        "queue_priority",
        "code",
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
        container: Container | None = None,
        run_policy: RunPolicy | None = None,
        queue_name: str | None = None,
        queue_priority: str | None = None,
        code: Code | None = None,
        **kwargs: Any,
    ) -> None:
        if "queue" in kwargs and queue_name is None and not is_unmapping(self):
            from airflow_kftrain.operators.parameters import check_queue

            check_queue()
        super().__init__(**kwargs)
        self.image = image
        self.command = command
        self.args = args
        self.env = env
        self.container_resources = container_resources
        self.pod = pod
        self.container = container
        self.run_policy = run_policy
        self.queue_name = queue_name
        self.queue_priority = queue_priority
        self.code = code
