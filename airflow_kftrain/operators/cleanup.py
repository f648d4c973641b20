"""What the worker does with the job when its task ends: leave it, delete it or mark it.

Only `await_pods` raises a KfTrainError: what cannot be done now does not change how the task ends.
The job's TTL and the sweeper remove what is left behind.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from airflow_kftrain.errors import ClusterError, Conflict, KfTrainError, NotFound
from airflow_kftrain.hooks.credentials import address_of
from airflow_kftrain.job_state import JobState, Phase, read_state
from airflow_kftrain.manifests.identity import DELIVERED_ANNOTATION
from airflow_kftrain.monitoring.pods import read_pod
from airflow_kftrain.ownership import Claim, read_claim

if TYPE_CHECKING:
    from airflow.sdk.types import Logger

    from airflow_kftrain.messages import WatchOrder

_LOOKS = 5
_PAUSE = 2.0


class Cleanup:
    """Acts on the job of one order. All calls share one hook, since credentials and TLS take
    time."""

    def __init__(self, order: WatchOrder, log: Logger) -> None:
        from airflow_kftrain.hooks.training_job import TrainingJobHook

        self._order = order
        self._log = log
        self._hook = TrainingJobHook(order.connection)

    def find(self) -> dict[str, Any] | None:
        """The job as it is now; None if it is gone or cannot be read."""
        if not self._order.job.name:
            return None
        try:
            return self._read()
        except KfTrainError as error:
            self._log.warning(
                "The job is not changed; this does not affect the result of the task: %s", error
            )
            return None

    def end(self, found: dict[str, Any] | None) -> dict[str, Any] | None:
        """Deletes the job if it is unfinished. If it has finished in the meantime, it stays and is
        returned: its result counts. `found` is the job as it was read last."""
        try:
            for _ in range(_LOOKS):
                if found is None or self.state(found).phase.is_final:
                    return found
                try:
                    self._delete(found, foreground=True)
                    return None
                except Conflict:  # it has changed since it was read
                    found = self._read()
            raise self._keeps_changing()
        except KfTrainError as error:
            self._log.warning("The job cannot be deleted now; the sweeper will find it: %s", error)
            return None

    def close(self, found: dict[str, Any] | None, on_finish: str) -> None:
        """Deletes a job that has finished and whose end was reported, or marks it as delivered, so
        that no later try takes its result for its own."""
        try:
            for _ in range(_LOOKS):
                if found is None:
                    return
                try:
                    if _is_deleted(on_finish, self.state(found).phase):
                        self._delete(found, foreground=False)
                    else:
                        self._mark(found)
                    return
                except Conflict:  # it has changed since it was read
                    found = self._read()
            raise self._keeps_changing()
        except KfTrainError as error:
            self._log.warning(
                "The job is not changed; this does not affect the result of the task: %s", error
            )

    def await_pods(self, patience: float, is_killed: Callable[[], bool]) -> None:
        """Waits until no pod of the job runs any more: two trainings must never write to the same
        folder. Raises ClusterError if one stays, such as on a node that does not answer."""
        order, job = self._order, self._order.job
        end = time.monotonic() + patience
        while not is_killed():
            raw = self._hook.pods(order.kind, job.namespace, job.name)
            pods = [read_pod(order.kind, pod) for pod in raw]
            living = [pod for pod in pods if pod.phase not in ("Succeeded", "Failed")]
            if not living:
                return
            if time.monotonic() > end:
                raise ClusterError(
                    f"run {job.kind} {job.namespace}/{job.name} again",
                    f"its pod {living[0].name} on {living[0].node or 'no node'} still exists "
                    f"{patience:.0f} s after the job has ended",
                    advice="If its node is lost, delete the pod by force or remove the node.",
                )
            time.sleep(_PAUSE)

    def state(self, found: dict[str, Any]) -> JobState:
        return read_state(self._order.kind, found)

    def _read(self) -> dict[str, Any] | None:
        """The job, if it is on the cluster to which the connection leads now. Its uid decides: a
        job of the same name on another cluster is not touched."""
        order, job = self._order, self._order.job
        found = self._hook.get(order.kind, job.namespace, job.name)
        if read_claim(found).uid == job.uid:
            return found
        moved = order.cluster and self._hook.leads_elsewhere(order.cluster)
        if moved:
            self._log.warning(
                "%s %s/%s was left on the cluster at %s: %s. Delete it there by hand if it is "
                "still running.",
                *job[:3],
                address_of(order.cluster),
                moved,
            )
        return None

    def _delete(self, found: dict[str, Any], *, foreground: bool) -> None:
        """Deletes the job in the version that was read. In the foreground, its pods are deleted
        first: the next try waits until they are gone."""
        claim, job = read_claim(found), self._order.job
        if not self._is_ours(claim):
            return
        gone = self._hook.delete(
            self._order.kind,
            job.namespace,
            job.name,
            uid=claim.uid,
            resource_version=claim.resource_version,
            foreground=foreground,
        )
        if gone:
            self._log.info("Deleted %s %s/%s.", job.kind, job.namespace, job.name)

    def _mark(self, found: dict[str, Any]) -> None:
        claim, job = read_claim(found), self._order.job
        if not self._is_ours(claim):
            return
        notes = {DELIVERED_ANNOTATION: claim.owner.ti_id}
        patch = {"metadata": {"annotations": notes, "resourceVersion": claim.resource_version}}
        try:
            self._hook.patch(self._order.kind, job.namespace, job.name, patch)
        except NotFound:
            return

    def _is_ours(self, claim: Claim) -> bool:
        if claim.terminating:
            return False
        if claim.owner.ti_id != self._order.owner:
            self._log.info("Another try has adopted the job: it is not changed.")
            return False
        return True

    def _keeps_changing(self) -> Conflict:
        job = self._order.job
        return Conflict(f"close {job.kind} {job.name}", "it keeps changing")


def _is_deleted(on_finish: str, phase: Phase) -> bool:
    return on_finish == "delete" or (on_finish == "delete_on_success" and phase is Phase.SUCCEEDED)
