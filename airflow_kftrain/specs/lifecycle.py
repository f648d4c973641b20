"""Lifecycle, Logs and Links: how a task treats its job, and what it shows of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from airflow_kftrain.errors import InvalidSpec
from airflow_kftrain.specs.later import LATER
from airflow_kftrain.specs.nouns import check_fields, check_noun
from airflow_kftrain.specs.values import flag, one_of, positive, text, whole_number

ON_FINISH = ("delete_on_success", "delete", "keep")
SHOW_LOGS = ("off", "leader", "all")
BYTES_A_MINUTE = 16 * 1024


class Lifecycle(NamedTuple):
    """From submit to the end: what the task does with its job, and how it ends itself."""

    on_finish: str = "delete_on_success"
    """What becomes of a job that has ended: "delete_on_success" (a failed one stays to be looked
    at), "delete" or "keep". A job that still lives when its task ends is always deleted."""
    reattach: bool = True
    """A retry goes on with the job of the try before if that asks for the same and was not
    cleared; False: it always starts anew."""
    fail_fast: bool = False
    """A failed replica ends the job at once, also where the operator would go on without it."""
    skip_on_exit_code: int | str | Sequence[int | str] | None = None
    """Exit codes of the first real failure that skip the task instead of failing it."""
    result_required: bool = False
    """A job that succeeds without a result fails its task."""


class Logs(NamedTuple):
    """What of the pods' logs stands in the task log. Its end always does."""

    waiting: str = "leader"
    """While the task waits on the worker: "off", "leader" or "all" pods, as it is written."""
    deferred: str = "off"
    """While it is deferred: once a minute, read by the triggerer. Costs a call a pod each time."""
    bytes_a_minute: int | str = BYTES_A_MINUTE
    """While deferred, for each job; what is more is left out, and said to be."""


class Links(NamedTuple):
    """URL templates of the buttons; None is the one of the section [kftrain] of Airflow's
    configuration, "" no button.

    Placeholders: {namespace} {job} {pod} {container} {role} {index} {start} {finish}, the last two
    in milliseconds since 1970; {finish} is a day from now while nobody knows it. A button appears
    as soon as all that its URL asks for is known.
    """

    training_job: str | None = None
    leader_logs: str | None = None
    worker_logs: str | None = None
    """Also the template of the XCom `log_links`."""
    dashboard: str | None = None


def check_lifecycle(field: str, lifecycle: Any) -> Any:
    """The lifecycle with `skip_on_exit_code` as a tuple of numbers."""
    if lifecycle is LATER:
        return lifecycle
    checked = check_fields(field, check_noun(field, lifecycle, Lifecycle), _LIFECYCLE_CHECKS)
    return checked if checked.skip_on_exit_code else checked._replace(skip_on_exit_code=())


def check_logs(field: str, logs: Any) -> Any:
    if logs is LATER:
        return logs
    return check_fields(field, check_noun(field, logs, Logs), _LOGS_CHECKS)


def check_links(field: str, links: Any) -> Any:
    if links is LATER:
        return links
    return check_fields(field, check_noun(field, links, Links), _LINKS_CHECKS)


PLACEHOLDERS = ("namespace", "job", "pod", "container", "role", "index", "start", "finish")
_FILLED_IN = frozenset((name, "", None) for name in PLACEHOLDERS)
"""As string.Formatter takes a template apart: a name without layout or conversion."""


def check_link(field: str, value: Any) -> Any:
    """A URL template: http(s), and no placeholder that is not known."""
    from string import Formatter

    if value in (LATER, ""):
        return value
    template = text(field, value)
    try:
        parts = [part[1:] for part in Formatter().parse(template) if part[1] is not None]
    except ValueError:
        raise InvalidSpec(
            field,
            "has braces that make no placeholder",
            value=value,
            advice="Write %7B and %7D for braces that are part of the URL.",
        ) from None
    if unknown := [part for part in parts if part not in _FILLED_IN]:
        raise InvalidSpec(
            field,
            f"has a placeholder that nobody fills in, {{{unknown[0][0]}}}",
            value=value,
            advice=f"There are {', '.join(f'{{{name}}}' for name in PLACEHOLDERS)}, as they are.",
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
        raise InvalidSpec(field, "is no exit code of a failure, 1 to 255", value=value)
    return code


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
}
_LOGS_CHECKS = {"waiting": _show, "deferred": _show, "bytes_a_minute": positive}
_LINKS_CHECKS = {name: check_link for name in Links._fields}
