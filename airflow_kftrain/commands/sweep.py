"""`airflow-kftrain sweep`: lists the unfinished jobs of this Airflow with the states of their
tasks, and deletes orphans.

It needs Airflow's configuration, and reads the states from the metadata database
(airflow_compat.stored_task_state says why). Exit codes: 0, no orphan is left; 1, orphans are left;
2, some jobs could not be checked.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import redirect_stdout
from datetime import datetime, timezone
from typing import Any, NamedTuple

from airflow_kftrain.airflow_compat import (
    airflow_instance,
    instance_is_configured,
    stored_task_state,
)
from airflow_kftrain.errors import KfTrainError, NotServed
from airflow_kftrain.hooks.api_calls import ALL_NAMESPACES
from airflow_kftrain.hooks.training_job_async import AsyncTrainingJobHook
from airflow_kftrain.job_state import JobState, read_mapping, read_state, read_text
from airflow_kftrain.kinds import KINDS, JobKind
from airflow_kftrain.manifests.identity import INSTANCE_LABEL
from airflow_kftrain.manifests.naming import label_safe
from airflow_kftrain.monitoring.text import one_line
from airflow_kftrain.ownership import Claim, TaskState, is_orphan, read_claim
from airflow_kftrain.watching.sweeping import Suspect, sweep

_NO_NAME = """\
this Airflow has no name of its own, so jobs of other Airflows could look like its own. Configure \
[kftrain] instance, or use --instance with the name under which the jobs were created."""

_HEAD = ("JOB", "AGE", "DAG", "RUN", "TASK", "INDEX", "STATE", "VERDICT")


class _Row(NamedTuple):
    job: Suspect
    claim: Claim
    task: TaskState | None
    """None if it could not be read."""
    verdict: str


_ORPHAN = "orphan"
_UNKNOWN = "unknown"


def main(words: list[str]) -> int:
    given = _arguments(words)
    if not given.instance and not instance_is_configured():
        sys.stderr.write(f"airflow-kftrain sweep: {_NO_NAME}\n")
        return 2
    with redirect_stdout(sys.stderr):  # Airflow prints its own messages there
        command = _Sweep(given.conn_id, given.instance or airflow_instance())
        asyncio.run(command.look(given.namespace))
        if given.yes:
            asyncio.run(command.delete_orphans())
    sys.stdout.write(command.table())
    for line in command.remarks():
        sys.stderr.write(f"airflow-kftrain sweep: {line}\n")
    return command.exit_code()


def _arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="airflow-kftrain sweep",
        description="List the unfinished jobs of this Airflow, and delete orphans.",
        epilog="Exit code 0: no orphan is left; 1: some are; 2: some jobs could not be checked.",
    )
    parser.add_argument(
        "--conn-id", default="kubernetes_default", help="the Airflow connection (%(default)s)"
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--namespace", default="", help="the namespace of the jobs (default: the connection's)"
    )
    where.add_argument(
        "--all-namespaces",
        dest="namespace",
        action="store_const",
        const=ALL_NAMESPACES,
        help="all namespaces; needs permission to list jobs in the whole cluster",
    )
    parser.add_argument(
        "--instance",
        default="",
        metavar="NAME",
        help="the name of this Airflow, if it is not configured",
    )
    parser.add_argument("--yes", action="store_true", help="delete the orphans")
    return parser.parse_args(words)


class _Sweep:
    def __init__(self, connection: str, instance: str) -> None:
        self._connection = connection
        self._instance = instance
        self._rows: list[_Row] = []
        self._failures: list[str] = []

    async def look(self, namespace: str) -> None:
        hook = AsyncTrainingJobHook(self._connection)
        try:
            place = namespace or await hook.namespace()
        except KfTrainError as error:
            self._fail(str(error))
            return
        for kind in KINDS:
            try:
                async for job in self._jobs(hook, kind, place):
                    self._rows.append(self._row(kind, job))
            except NotServed:
                continue
            except KfTrainError as error:
                self._fail(str(error))
        self._rows.sort(key=lambda row: (row.job.namespace, row.job.name, row.job.kind))

    async def _jobs(
        self, hook: AsyncTrainingJobHook, kind: JobKind, namespace: str
    ) -> AsyncIterator[dict[str, Any]]:
        """The unfinished jobs of this Airflow. The annotation decides: the label may be a hash, and
        an operator may have copied it to its own objects."""
        selector = f"{INSTANCE_LABEL}={label_safe(self._instance)}"
        async for job in hook.list(kind, namespace, selector):
            ours = read_claim(job).owner.instance == self._instance
            if ours and not read_state(kind, job).phase.is_final:
                yield job

    def _row(self, kind: JobKind, job: Mapping[str, Any]) -> _Row:
        claim, owner = read_claim(job), read_claim(job).owner
        namespace = read_text(read_mapping(job.get("metadata")).get("namespace"))
        place = Suspect(kind.api_version, kind.kind, namespace, claim.name)
        try:
            task = stored_task_state(owner)
        except Exception as error:  # noqa: BLE001  # of whichever database there is
            self._fail(f"cannot read the state of a task: {one_line(str(error))}")
            return _Row(place, claim, None, _UNKNOWN)
        return _Row(place, claim, task, _verdict(claim, read_state(kind, job), task))

    async def delete_orphans(self) -> None:
        hook = AsyncTrainingJobHook(self._connection)
        for number, (job, claim, task, verdict) in enumerate(self._rows):
            if verdict != _ORPHAN or task is None:
                continue
            try:
                done = await sweep(hook, job, claim.owner, task)
            except KfTrainError as error:
                self._fail(str(error))
                verdict = "orphan, cannot be deleted"
            else:
                verdict = "deleted" if done else "not deleted, since it has changed"
            self._rows[number] = self._rows[number]._replace(verdict=verdict)

    def table(self) -> str:
        if not self._rows:
            return "" if self._failures else f"no unfinished jobs of {self._instance}\n"
        cells = [_HEAD, *(_cells(row) for row in self._rows)]
        widths = [max(len(line[column]) for line in cells) for column in range(len(_HEAD))]
        return "".join(f"{_aligned(line, widths)}\n" for line in cells)

    def remarks(self) -> list[str]:
        orphans = self._orphans()
        if orphans:
            plural = "s" if orphans > 1 else ""
            return [*self._failures, f"{orphans} orphan{plural}; delete with --yes"]
        return self._failures

    def exit_code(self) -> int:
        return 2 if self._failures else int(self._orphans() > 0)

    def _orphans(self) -> int:
        return sum(row.verdict == _ORPHAN for row in self._rows)

    def _fail(self, why: str) -> None:
        if why not in self._failures:
            self._failures.append(why)


def _verdict(claim: Claim, state: JobState, task: TaskState) -> str:
    if is_orphan(claim, state, task):
        return _ORPHAN
    if claim.terminating:
        return "being deleted"
    return "not waited for" if claim.unattended else "in use"


def _cells(row: _Row) -> tuple[str, ...]:
    owner = row.claim.owner
    state = "?" if row.task is None else "gone" if not row.task.exists else row.task.state or "-"
    index = "-" if owner.map_index < 0 else str(owner.map_index)
    age = _age(row.claim.created)
    task = (owner.dag_id, owner.run_id, owner.task_id, index)
    return (str(row.job), age, *task, state, row.verdict)


def _aligned(line: Sequence[str], widths: Sequence[int]) -> str:
    cells = zip(line, widths, strict=True)
    return "  ".join(text.ljust(width) for text, width in cells).rstrip()


def _age(created: datetime | None) -> str:
    if created is None:
        return "?"
    seconds = max(int((datetime.now(timezone.utc) - created).total_seconds()), 0)
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
