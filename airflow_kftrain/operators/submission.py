"""Gives a task exactly one job in the cluster, whatever earlier tries have left there."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, NamedTuple

from airflow_kftrain.errors import ClusterError, Conflict, NotFound
from airflow_kftrain.job_state import read_mapping, read_state, read_text
from airflow_kftrain.kinds import JobKind, JobReference, find_kind
from airflow_kftrain.manifests.identity import (
    CLEARS_ANNOTATION,
    DIGEST_ANNOTATION,
    GENERATION_ANNOTATION,
    IDENTITY_LABEL,
    INSTANCE_LABEL,
    OWNER_ANNOTATION,
    TRY_ANNOTATION,
    UNATTENDED_ANNOTATION,
    Owner,
    owner_labels,
)
from airflow_kftrain.messages import MaskedText, WatchOrder, read_masked, read_texts
from airflow_kftrain.operators.showing import (
    LinkKeeper,
    announce,
    created_at,
    keeper_for,
)
from airflow_kftrain.ownership import Claim, Course, is_superseded, read_claim, settle

if TYPE_CHECKING:
    from airflow.sdk.types import Logger

    from airflow_kftrain.hooks.training_job import TrainingJobHook
    from airflow_kftrain.operators.settings import Settings
    from airflow_kftrain.specs.lifecycle import Lifecycle

_OF_A_TRY = (
    OWNER_ANNOTATION,
    TRY_ANNOTATION,
    GENERATION_ANNOTATION,
    CLEARS_ANNOTATION,
    UNATTENDED_ANNOTATION,
)
_UNTIL_GONE = timedelta(minutes=2)
_LOOKS = 10
"""How often to read a job again that changes all the time."""


class Submitted(NamedTuple):
    """The job, and the try for which it runs."""

    job: JobReference
    kind: JobKind
    owner: Owner
    deadline: datetime | None
    keeper: LinkKeeper
    ended: bool
    """Whether it is the finished job of an earlier try."""
    masked: tuple[MaskedText, ...]
    cluster: str
    """The fingerprint of its cluster."""
    earlier: tuple[str, ...] = ()
    """What ended the earlier jobs of this try."""

    def order(self, settings: Settings, *, show_logs: str) -> WatchOrder:
        order = _order(self.job, self.kind.api_version, self.owner, self.deadline, settings)
        return order._replace(
            show_logs=show_logs,
            ordered=datetime.now(timezone.utc),
            masked=self.masked,
            cluster=self.cluster,
            earlier=self.earlier,
        )


def _order(
    job: JobReference,
    api_version: str,
    owner: Owner,
    deadline: datetime | None,
    settings: Settings,
) -> WatchOrder:
    return WatchOrder(
        job=job,
        api_version=api_version,
        connection=settings.connection,
        instance=owner_labels(owner)[INSTANCE_LABEL],
        owner=owner.ti_id,
        looped=bool(owner.region_id),
        timeouts=settings.timeouts,
        deadline=deadline,
        fail_fast=settings.lifecycle.fail_fast,
        poll_interval=float(settings.poll_interval),
        bytes_a_minute=settings.logs.bytes_a_minute,  # type: ignore[arg-type]  # checked
        progress=settings.logs.progress,
        system_retries=settings.lifecycle.system_retries,
    )


def submit(
    hook: TrainingJobHook,
    manifest: dict[str, Any],
    masked: tuple[MaskedText, ...],
    context: Mapping[str, Any],
    owner: Owner,
    deadline: datetime | None,
    settings: Settings,
    log: Logger,
    earlier: tuple[str, ...] = (),
) -> Submitted:
    """Returns the job for this manifest, which now runs for this try, and stores its XComs."""
    from airflow_kftrain.operators.ending import left_to_a_retry

    instance = context["ti"]
    kind = find_kind(manifest["apiVersion"], manifest["kind"])
    submission = _Submission(
        hook, kind, manifest, owner, settings.lifecycle, log, instance.start_date
    )
    with left_to_a_retry(context, log, submission.withdraw):
        found = submission.job()
        keeper = keeper_for(instance, settings.links, kind, found, log)
        cluster = hook.cluster()
        announce(keeper, kind.api_version, cluster, masked, earlier)
    ended = read_state(kind, found).phase.is_final
    return Submitted(keeper.job, kind, owner, deadline, keeper, ended, masked, cluster, earlier)


def owner_of(context: Mapping[str, Any], retries: int | None) -> Owner:
    from airflow_kftrain.airflow_compat import airflow_instance, map_index_of, region_of

    instance = context["ti"]
    region_id, region_index = region_of(context)
    return Owner(
        instance=airflow_instance(),
        dag_id=instance.dag_id,
        task_id=instance.task_id,
        run_id=instance.run_id,
        ti_id=str(instance.id),
        map_index=map_index_of(instance),
        try_number=instance.try_number,
        clears=max((instance.max_tries or 0) - (retries or 0), 0),
        region_id=region_id,
        region_index=region_index,
    )


def deadline_of(instance: Any, execution_timeout: timedelta | None) -> datetime | None:
    if execution_timeout is None:
        return None
    started: datetime = instance.start_date or datetime.now(timezone.utc)
    return started + execution_timeout


def order_from_xcom(
    instance: Any, owner: Owner, deadline: datetime | None, settings: Settings
) -> WatchOrder | None:
    """The order for the job that this try has submitted."""
    said = instance.xcom_pull(task_ids=instance.task_id, key="job", map_indexes=instance.map_index)
    stored = read_mapping(said)
    if not stored:
        return None
    earlier = read_texts(stored.get("earlier"))
    order = _order(
        JobReference(*(read_text(stored.get(name)) for name in JobReference._fields)),
        read_text(stored.get("api_version")),
        owner,
        deadline,
        settings,
    )
    return order._replace(
        cluster=read_text(stored.get("cluster")),
        masked=read_masked(stored.get("masked")),
        earlier=earlier,
    )


class _Submission:
    def __init__(
        self,
        hook: TrainingJobHook,
        kind: JobKind,
        manifest: dict[str, Any],
        owner: Owner,
        lifecycle: Lifecycle,
        log: Logger,
        started: datetime | None,
    ) -> None:
        self._hook = hook
        self._kind = kind
        self._manifest = manifest
        self._owner = owner
        self._lifecycle = lifecycle
        self._log = log
        self._started = started
        self._namespace: str = manifest["metadata"]["namespace"]
        self._digest: str = manifest["metadata"]["annotations"][DIGEST_ANNOTATION]

    def job(self) -> dict[str, Any]:
        """The job for this try: that of an earlier try, or a new one."""
        adopted = None
        # The newest first: there is more than one only if something went wrong.
        for resource in sorted(self._of_all_tries(), key=created_at, reverse=True):
            adopted = self._settle(resource, adopted) or adopted
        if adopted is not None:
            return adopted
        created: dict[str, Any] = self._hook.submit(self._kind, self._manifest)
        self._log.info("Created %s %s.", self._kind.kind, _place(created))
        return created

    def withdraw(self) -> None:
        """Deletes unfinished jobs of this try, even if the response to their creation was lost."""
        for resource in self._of_all_tries():
            for current in self._looks(resource):
                claim = read_claim(current)
                final = read_state(self._kind, current).phase.is_final
                if claim.owner != self._owner or claim.terminating or final:
                    break
                try:
                    self._delete(claim)
                except Conflict:
                    continue  # it has changed since it was read
                self._log.info("Deleted %s %s.", self._kind.kind, _place(current))
                break

    def _of_all_tries(self) -> list[dict[str, Any]]:
        selector = f"{IDENTITY_LABEL}={self._owner.identity}"
        return self._hook.list(self._kind, self._namespace, selector)

    def _settle(
        self, resource: dict[str, Any], adopted: dict[str, Any] | None
    ) -> dict[str, Any] | None:
        """Adopts, replaces or leaves an existing job. Returns it if it was adopted."""
        for current in self._looks(resource):
            claim = read_claim(current)
            if is_superseded(claim, self._owner, self._started):
                raise self._superseded(claim)
            state = read_state(self._kind, current)
            course = settle(
                claim, state, self._owner, self._digest, reattach=self._lifecycle.reattach
            )
            if course is Course.LEAVE:
                return None
            try:
                if course is Course.ADOPT and adopted is None:
                    return self._adopt(current, claim)
                if self._is_in_the_way(claim, state.phase.is_final):
                    self._replace(current, claim)
                return None
            except Conflict:
                continue  # it has changed since it was read
        return None  # it is gone

    def _superseded(self, claim: Claim) -> ClusterError:
        return ClusterError(
            f"run a {self._kind.kind} for try {self._owner.try_number}",
            f"try {claim.owner.try_number} of the task has started already, and has a job",
            advice="Airflow has abandoned this try; its worker may have been frozen.",
            reason="Superseded",
        )

    def _looks(self, resource: dict[str, Any]) -> Iterator[dict[str, Any]]:
        name = resource["metadata"]["name"]
        for _ in range(_LOOKS):
            yield resource
            found = self._hook.get(self._kind, self._namespace, name)
            if found is None or found["metadata"].get("uid") != resource["metadata"].get("uid"):
                return
            resource = found
        raise ClusterError(
            f"take over {self._kind.kind} {_place(resource)}",
            "it keeps changing",
            reason="Conflict",
        )

    def _is_in_the_way(self, claim: Claim, final: bool) -> bool:
        """Whether it has to be deleted first. A finished job stays, as its author wants, unless it
        has the name of the new one."""
        return not final or claim.terminating or claim.name == self._manifest["metadata"]["name"]

    def _adopt(self, current: dict[str, Any], claim: Claim) -> dict[str, Any]:
        said = self._manifest["metadata"]["annotations"]
        # None removes an annotation: this try may wait although the earlier one did not.
        notes = {key: said.get(key) for key in _OF_A_TRY}
        self._log.info(
            "Adopting %s %s of try %d, which asks for the same.",
            self._kind.kind,
            _place(current),
            claim.owner.try_number,
        )
        if claim.owner.ti_id == notes[OWNER_ANNOTATION]:
            return current
        patch = {"metadata": {"annotations": notes, "resourceVersion": claim.resource_version}}
        try:
            adopted: dict[str, Any] = self._hook.patch(
                self._kind, self._namespace, claim.name, patch
            )
        except NotFound:
            raise Conflict("adopt the job", "it no longer exists") from None  # read it again
        return adopted

    def _replace(self, current: dict[str, Any], claim: Claim) -> None:
        what = f"{self._kind.kind} {_place(current)}"
        self._log.info(
            "%s of try %d is replaced: it is deleted, and a new job is created when it is gone.",
            what,
            claim.owner.try_number,
        )
        if not claim.terminating:
            self._delete(claim)
        end = time.monotonic() + _UNTIL_GONE.total_seconds()
        while self._is_there(claim):
            if time.monotonic() > end:
                raise ClusterError(
                    f"replace {what}",
                    f"it still exists {_UNTIL_GONE.total_seconds():.0f} s after its deletion",
                    advice="Check its finalizers and its pods: a node may be lost.",
                )
            time.sleep(1)

    def _delete(self, claim: Claim) -> None:
        self._hook.delete(
            self._kind,
            self._namespace,
            claim.name,
            uid=claim.uid,
            resource_version=claim.resource_version,
            # With its pods: two trainings must never write to the same folder.
            foreground=True,
        )

    def _is_there(self, claim: Claim) -> bool:
        place = (self._kind, self._namespace, claim.name)
        found = self._hook.get(*place)
        if found is not None and read_claim(found).uid == claim.uid:
            return True
        return self._kind.recreates and bool(self._hook.pods(*place))


def _place(resource: Mapping[str, Any]) -> str:
    metadata = resource["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}"
