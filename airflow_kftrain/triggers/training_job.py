"""The trigger of a deferred task: watches its job, and fires one event, always."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timezone
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_kftrain.airflow_compat import has_trigger_on_kill, map_index_of, push_xcom, task_state
from airflow_kftrain.messages import Outcome, ReplicaPod, WatchOrder, shared_words
from airflow_kftrain.monitoring.decisions import Verdict
from airflow_kftrain.monitoring.failures import Fault
from airflow_kftrain.monitoring.text import one_line

_NO_LINKS: dict[str, str] = {}
"""One for all triggers: there may be thousands."""


class _Ended(TriggerEvent):
    """Airflow writes events into the task's log, where the worker tells the whole story."""

    def __repr__(self) -> str:
        return f"{self.payload['verdict']}: {self.payload.get('words', '')}"


class TrainingJobTrigger(BaseTrigger):
    """Stored in plain text, and made anew by whichever triggerer takes over: `order` and `links`
    hold names, ids and times, no secrets and nothing that counts from a start."""

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
        # Before the event, and nothing after it: Airflow calls on_kill of a trigger that lingers.
        self._fired = True
        yield _Ended(payload=event)

    async def on_kill(self) -> None:
        """Somebody ended the task; or nobody did, and Airflow has only given it to another
        triggerer. Who ends the job finds out."""
        if self._fired or self.task_instance is None:
            return
        from airflow_kftrain.watching.ending import end_job

        task = self.task_instance
        index = map_index_of(task)
        await end_job(
            WatchOrder.from_dict(self.order),
            lambda: task_state(task.dag_id, task.run_id, task.task_id, index),
        )

    async def cleanup(self) -> None:
        """All that an Airflow without on_kill calls. After too long a deferral it is for the worker
        to end the job, with a report on it."""
        if not has_trigger_on_kill() and not self._is_overdue():
            await self.on_kill()

    def _is_overdue(self) -> bool:
        limit: datetime | None = getattr(self, "timeout_after", None)  # the triggerer sets it
        if limit is None:
            return False
        return (limit if limit.tzinfo else limit.replace(tzinfo=timezone.utc)) < _now()

    async def _event(self) -> dict[str, Any]:
        try:
            # Not when a DAG is parsed: it brings the hooks along.
            from airflow_kftrain.watching.watcher import watch_job

            order = WatchOrder.from_dict(self.order)
            outcome = await watch_job(
                order,
                tell=self._tell,
                pods_known=self._push_links if self.links else None,
                sweeps=True,
            )
            await _until(order.not_before)
            # Only now: the worker that has deferred stores its links when it ends.
            if outcome.pods:
                await self._push_links(outcome.pods, outcome.finished)
            return outcome.to_dict()
        except Exception as error:  # without an event the task would hang
            self.log.exception("The trigger failed")
            text = one_line(f"{type(error).__name__}: {error}")
            words = f"The trigger failed, a fault of airflow-kftrain: {text}"
            failed = Outcome(Verdict.FAILED, "TriggerFailed", words, words, fault=Fault.SYSTEM)
            return failed.to_dict()

    def _tell(self, line: str) -> None:
        # Of the class: one of its own takes as much memory as all else that a trigger knows.
        self.logger().info("%s", line)

    async def _push_links(self, pods: Sequence[ReplicaPod], finish: datetime | None = None) -> None:
        """What could not be linked to before the pods were there. Links are never worth a job."""
        task = self.task_instance
        if not self.links or task is None:
            return
        from airflow_kftrain.links import fill_links, log_links

        order = WatchOrder.from_dict(self.order)
        start = order.ordered or _now()
        try:
            urls = fill_links(self.links, order.job, pods, start, finish)
            for key, url in urls.items():
                await push_xcom(task, key, url, link=True)
            listed = log_links(self.links.get("worker_logs", ""), order.job, pods, start, finish)
            if listed:
                await push_xcom(task, "log_links", listed, link=False)
        except Exception as error:  # noqa: BLE001  # Airflow's own, of any kind
            self.log.warning("Cannot store the links: %s", one_line(str(error)))


async def _until(moment: datetime | None) -> None:
    """An event that comes too early is lost."""
    if moment is not None:
        await asyncio.sleep((moment - _now()).total_seconds())


def _now() -> datetime:
    return datetime.now(timezone.utc)
