"""The trigger of a deferred task. It watches the job, and always fires exactly one event."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timezone
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_kftrain.airflow_compat import (
    has_trigger_on_kill,
    link_is_stored,
    map_index_of,
    push_xcom,
    shows_task_tab,
    state_when_killed,
    workers_are_processes,
)
from airflow_kftrain.messages import SHOWN_KEY, Outcome, ReplicaPod, WatchOrder, shared_words
from airflow_kftrain.monitoring.decisions import Verdict
from airflow_kftrain.monitoring.failures import Fault
from airflow_kftrain.monitoring.text import one_line

_NO_LINKS: dict[str, str] = {}
"""Shared by all triggers: there may be thousands."""


class _Ended(TriggerEvent):
    """Airflow writes events to the task's log. This one is short, since the worker writes the whole
    report."""

    def __repr__(self) -> str:
        return f"{self.payload['verdict']}: {self.payload.get('words', '')}"


class TrainingJobTrigger(BaseTrigger):
    """Stored in plain text, and recreated by the triggerer that takes over. `order` and `links`
    contain names, ids and times, but no secrets and no durations."""

    _pods: tuple[ReplicaPod, ...] = ()
    """Those whose links are stored."""

    def __init__(
        self, order: dict[str, Any], links: dict[str, str] | None = None, **unknown: object
    ) -> None:
        """`order` is WatchOrder.to_dict(), `links` are URL templates by the fields of Links.
        `unknown` are arguments of another version of this package."""
        super().__init__()  # type: ignore[no-untyped-call]
        self.order = shared_words(order)
        self.links = links if links and isinstance(links, dict) else _NO_LINKS
        self._fired = False

    def serialize(self) -> tuple[str, dict[str, Any]]:
        path = f"{type(self).__module__}.{type(self).__qualname__}"
        return path, {"order": self.order, "links": self.links}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        event = await self._event()
        # Before the event, with nothing after it: Airflow calls on_kill of a trigger that keeps
        # running.
        self._fired = True
        yield _Ended(payload=event)

    async def on_kill(self) -> None:
        """Somebody has ended the task; or nobody has, and Airflow has only moved it to another
        triggerer. `end_job` finds out which."""
        if self._fired or self.task_instance is None:
            return
        from airflow_kftrain.watching.ending import end_job

        task = self.task_instance
        index = map_index_of(task)
        order = WatchOrder.from_dict(self.order)
        await end_job(
            order,
            lambda: state_when_killed(task.dag_id, task.run_id, task.task_id, index, order.looped),
        )

    async def cleanup(self) -> None:
        """Called by an Airflow without on_kill, at every end. If the deferral took too long, the
        worker ends the job, with a report."""
        if not has_trigger_on_kill() and not self._is_overdue():
            await self.on_kill()

    def _is_overdue(self) -> bool:
        limit: datetime | None = getattr(self, "timeout_after", None)  # the triggerer sets it
        if limit is None:
            return False
        return (limit if limit.tzinfo else limit.replace(tzinfo=timezone.utc)) < _now()

    async def _event(self) -> dict[str, Any]:
        started = _now()
        try:
            # Imported late: parsing a DAG file does not need the hooks.
            from airflow_kftrain.links import asked_for
            from airflow_kftrain.triggers.holding import note_start
            from airflow_kftrain.watching.watcher import watch_job

            order = WatchOrder.from_dict(self.order)
            if order.ordered is not None:
                note_start(order.ordered)
            outcome = await watch_job(
                order,
                tell=self._tell,
                pods_known=self._push_new_links if self.links else None,
                store=self._store if self.task_instance is not None and order.owner else None,
                live=shows_task_tab(),
                sweeps=True,
            )
            await self._hold_event_back(order, started)
            outcome = outcome._replace(pods=asked_for(self.links, outcome.pods))
            # Only now: the worker that has deferred stores its links when it exits.
            if outcome.pods:
                await self._push_links(outcome.pods, outcome.finished)
            return outcome.to_dict()
        except Exception as error:  # without an event the task would hang
            self.log.exception("The trigger failed")
            text = one_line(f"{type(error).__name__}: {error}")
            words = f"The trigger failed, a bug in airflow-kftrain: {text}"
            failed = Outcome(Verdict.FAILED, "TriggerFailed", words, words, fault=Fault.SYSTEM)
            return failed.to_dict()

    async def _hold_event_back(self, order: WatchOrder, started: datetime) -> None:
        """Not under `dags test`, where there is no worker and no task instance."""
        task = self.task_instance
        if order.ordered is None or task is None:
            return
        from airflow_kftrain.links import DEFERRAL
        from airflow_kftrain.triggers import holding

        least = holding.LEAST if workers_are_processes() else holding.LEAST_FOR_PODS
        await holding.until_worker_has_ended(
            order.ordered, started, least, lambda: link_is_stored(task, DEFERRAL.xcom_key)
        )

    def _tell(self, line: str) -> None:
        # An attribute of the class: one per trigger would take as much memory as everything else.
        self.logger().info("%s", line)

    async def _store(self, value: dict[str, Any]) -> None:
        """Writes the XCom `kftrain`. An error there must not end a job."""
        task = self.task_instance
        if task is None:
            return
        try:
            await push_xcom(task, SHOWN_KEY, value, link=True)
        except Exception as error:  # noqa: BLE001  # Airflow's own, of any kind
            self.log.warning("Cannot store the XCom `kftrain`: %s", one_line(str(error)))

    async def _push_new_links(self, pods: Sequence[ReplicaPod]) -> None:
        from airflow_kftrain.links import asked_for

        known = asked_for(self.links, pods)
        if known != self._pods:
            self._pods = known
            await self._push_links(known)

    async def _push_links(self, pods: Sequence[ReplicaPod], finish: datetime | None = None) -> None:
        """Stores links that need the names of pods. An error there must not end a job."""
        task = self.task_instance
        if not self.links or task is None:
            return
        from airflow_kftrain.links import fill_links, log_links

        order = WatchOrder.from_dict(self.order)
        try:
            urls = fill_links(self.links, order.job, pods, finish)
            for key, url in urls.items():
                await push_xcom(task, key, url, link=True)
            listed = log_links(self.links.get("worker_logs", ""), order.job, pods, finish)
            if listed:
                await push_xcom(task, "log_links", listed, link=False)
        except Exception as error:  # noqa: BLE001  # Airflow's own, of any kind
            self.log.warning("Cannot store the links: %s", one_line(str(error)))


def _now() -> datetime:
    return datetime.now(timezone.utc)
