"""Lifecycle, Logs and Links: how a task treats its job, and what it shows of it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from airflow_kftrain.errors import InvalidSpec
from airflow_kftrain.specs.later import LATER
from airflow_kftrain.specs.nouns import answering, check_fields, check_noun
from airflow_kftrain.specs.values import flag, one_of, positive, seconds, text, whole_number

ON_FINISH = ("delete_on_success", "delete", "keep")
SHOW_LOGS = ("off", "leader", "all")
BYTES_A_MINUTE = 16 * 1024
_MOST_SYSTEM_RETRIES = 100


@answering
class Lifecycle(NamedTuple):
    """What the task does with its job, and how the task ends."""

    on_finish: str = "delete_on_success"
    """What to do with a finished job: "delete_on_success" (a failed job stays for inspection),
    "delete" or "keep". An unfinished job is always deleted when its task ends."""
    reattach: bool = True
    """A retry continues with the job of the previous try if that asks for the same and the task was
    not cleared. False: it always creates a new job."""
    fail_fast: bool = False
    """A failed replica ends the job at once, even if the operator would continue without it."""
    skip_on_exit_code: int | str | Sequence[int | str] | None = None
    """If the first real failure has one of these exit codes, the task is skipped and not failed."""
    result_required: bool = False
    """If the job succeeds without a result, the task fails."""
    system_retries: int = 0
    """How often one try runs its job again after the cluster has ended it: an eviction, a
    preemption, a lost node. Airflow does not count these as retries. The pauses before them are 10
    seconds, 1 minute and then 5 minutes."""
    fail_on_exit_code: int | str | Sequence[int | str] | None = None
    """If the first real failure has one of these exit codes, the task fails without a retry."""
    grace: timedelta | None = None
    """How long the pods have from SIGTERM to SIGKILL, for example to write a checkpoint.
    Kubernetes' default is 30 seconds."""


@answering
class Logs(NamedTuple):
    """Which logs of the pods appear in the task log. The end of the leader's log always does."""

    waiting: str = "leader"
    """While the task waits on the worker: "off", "leader" or "all" pods, as the log is written."""
    deferred: str = "off"
    """While the task is deferred: the triggerer reads once a minute, with one call per pod."""
    bytes_a_minute: int | str = BYTES_A_MINUTE
    """Limit per job while the task is deferred. If more is written, lines are omitted, and the log
    says so."""
    progress: bool = False
    """Read the progress and the metrics that the leader's program prints, at most once a minute."""


@answering
class Links(NamedTuple):
    """URL templates of the buttons. None: the template in section [kftrain] of Airflow's
    configuration. "": no button.

    Placeholders: {namespace} {job}, of a replica {pod} {container} {role} {index} {node}
    {container_id}, of the task {dag_id} {task_id} {run_id} {map_index} {try_number} {identity}, and
    {start} {finish} {start_time} {finish_time}. {start} and {finish} are in milliseconds since
    1970, {start_time} and {finish_time} are the same times in RFC 3339; until the job has ended,
    its finish is a day from now. A button appears as soon as all values that its URL needs are
    known.
    """

    training_job: str | None = None
    leader_logs: str | None = None
    worker_logs: str | None = None
    """Also the template of the XCom `log_links`."""
    dashboard: str | None = None


def check_lifecycle(field: str, lifecycle: Any) -> Any:
    """The lifecycle with exit codes as tuples of numbers."""
    if lifecycle is LATER:
        return lifecycle
    checked = check_fields(field, check_noun(field, lifecycle, Lifecycle), _LIFECYCLE_CHECKS)
    skipped, failed = checked.skip_on_exit_code or (), checked.fail_on_exit_code or ()
    if LATER not in (skipped, failed) and (both := set(skipped) & set(failed) - {LATER}):
        raise InvalidSpec(
            f"{field}.fail_on_exit_code",
            "has an exit code that skip_on_exit_code has, too",
            value=min(both),
            advice="Remove it from one of them.",
        )
    return checked._replace(skip_on_exit_code=skipped, fail_on_exit_code=failed)


def check_logs(field: str, logs: Any) -> Any:
    if logs is LATER:
        return logs
    return check_fields(field, check_noun(field, logs, Logs), _LOGS_CHECKS)


def check_links(field: str, links: Any) -> Any:
    if links is LATER:
        return links
    return check_fields(field, check_noun(field, links, Links), _LINKS_CHECKS)


OF_JOB = ("namespace", "job")
OF_REPLICA = ("pod", "container", "role", "index", "node", "container_id")
OF_TASK = ("dag_id", "task_id", "run_id", "map_index", "try_number", "identity")
TIMES = ("start", "finish", "start_time", "finish_time")
PLACEHOLDERS = (*OF_JOB, *OF_REPLICA, *OF_TASK, *TIMES)
_FILLED_IN = frozenset((name, "", None) for name in PLACEHOLDERS)
"""A placeholder as string.Formatter returns it: a name without format or conversion."""


def check_link(field: str, value: Any) -> Any:
    """A URL template: http or https, with known placeholders only."""
    from string import Formatter

    if value in (LATER, ""):
        return value
    template = text(field, value)
    try:
        parts = [part[1:] for part in Formatter().parse(template) if part[1] is not None]
    except ValueError:
        raise InvalidSpec(
            field,
            "has braces that are not a placeholder",
            value=value,
            advice="Write %7B and %7D for braces that are part of the URL.",
        ) from None
    if unknown := [part for part in parts if part not in _FILLED_IN]:
        raise InvalidSpec(
            field,
            f"has an unknown placeholder, {{{unknown[0][0]}}}",
            value=value,
            advice=f"Use {', '.join(f'{{{name}}}' for name in PLACEHOLDERS)}, without a format.",
        )
    if not template.startswith(("http://", "https://")):
        raise InvalidSpec(
            field, "must start with http:// or https://, since it becomes a button", value=value
        )
    return template


def _exit_codes(field: str, value: Any) -> Any:
    if value is LATER:
        return value
    codes = value if isinstance(value, list | tuple | set | frozenset) else (value,)
    return tuple(_exit_code(field, code) for code in codes)


def _exit_code(field: str, value: Any) -> Any:
    code = whole_number(field, value)
    if code is not LATER and not 0 < code <= 255:
        raise InvalidSpec(field, "is not the exit code of a failure, 1 to 255", value=value)
    return code


def _retries(field: str, value: Any) -> Any:
    count = whole_number(field, value)
    if count is not LATER and count > _MOST_SYSTEM_RETRIES:
        raise InvalidSpec(field, f"must be at most {_MOST_SYSTEM_RETRIES}", value=value)
    return count


def _grace(field: str, value: Any) -> Any:
    return seconds(field, value, least=1)


def _on_finish(field: str, value: Any) -> Any:
    return one_of(field, value, ON_FINISH)


def _show(field: str, value: Any) -> Any:
    return one_of(field, value, SHOW_LOGS)


_LIFECYCLE_CHECKS = {
    "on_finish": _on_finish,
    "reattach": flag,
    "fail_fast": flag,
    "skip_on_exit_code": _exit_codes,
    "result_required": flag,
    "system_retries": _retries,
    "fail_on_exit_code": _exit_codes,
    "grace": _grace,
}
_LOGS_CHECKS = {
    "waiting": _show,
    "deferred": _show,
    "bytes_a_minute": positive,
    "progress": flag,
}
_LINKS_CHECKS = {name: check_link for name in Links._fields}
