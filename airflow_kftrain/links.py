"""The buttons of a task. Their URLs are made from templates, as soon as all values are known.

Airflow shows a button for each link whose URL is in the task's XComs. The operator stores the URLs
that it can fill in at once, the trigger those that need names of pods.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperatorLink

from airflow_kftrain.airflow_compat import link_option, show_end_at_once, stored_link
from airflow_kftrain.errors import InvalidSpec
from airflow_kftrain.kinds import JobReference
from airflow_kftrain.messages import ReplicaPod
from airflow_kftrain.specs.lifecycle import OF_REPLICA, OF_TASK, Links, check_link

if TYPE_CHECKING:
    from airflow_kftrain.manifests.identity import Owner

OPTIONS = {name: f"{name}_url" for name in Links._fields}
"""The options of the section [kftrain], by the fields of Links."""

_OPEN_END = timedelta(days=1)
"""The end of a job until it is known, counted from now: viewers of logs need an end in the
future."""


class _StoredLink(BaseOperatorLink):
    """Airflow calls `get_link` after every run of the worker, and stores what it returns. So it
    returns what is stored already; otherwise a URL that the trigger has stored would be lost."""

    name = ""
    template = ""
    """The field of Links."""

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        links = getattr(operator, "links", None)
        if isinstance(links, Links) and self.template not in link_templates(links)[0]:
            return ""  # Airflow logs an error if it finds nothing
        return stored_link(ti_key, self.xcom_key)


class TrainingJobLink(_StoredLink):
    """The custom resource, for example in a dashboard of the cluster."""

    name = "Training job"
    template = "training_job"


class LeaderLogsLink(_StoredLink):
    """The log of the leader: the master, the launcher or the first worker."""

    name = "Leader logs"
    template = "leader_logs"


class WorkerLogsLink(_StoredLink):
    """The logs of the other pods; of the first of them if the URL is for one pod."""

    name = "Worker logs"
    template = "worker_logs"


class DashboardLink(_StoredLink):
    """Anything else about the job: metrics, TensorBoard."""

    name = "Dashboard"
    template = "dashboard"


LINKS = (TrainingJobLink(), LeaderLogsLink(), WorkerLogsLink(), DashboardLink())


class DeferralLink(BaseOperatorLink):
    """No button. Airflow stores the links of a task when its worker has deferred it. That this link
    is stored tells the trigger that the worker is about to exit."""

    name = "Deferral"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        if operator.has_deferred:
            show_end_at_once()
        return ""


DEFERRAL = DeferralLink()


def link_templates(links: Links) -> tuple[dict[str, str], list[str]]:
    """The templates by the fields of Links, with those of the configuration for fields that the
    author omits; and problems of the configuration, which must not keep a training from running."""
    templates, problems = {}, []
    for field, own in links._asdict().items():
        try:
            template = _configured(field) if own is None else own
        except InvalidSpec as error:
            problems.append(str(error))
            continue
        if template:
            templates[field] = template
    return templates, problems


def _configured(field: str) -> str:
    option = OPTIONS[field]
    template: str = check_link(f"[kftrain] {option}", link_option(option))
    return template


def filled_at_once(templates: Mapping[str, str], owner: Owner, start: datetime) -> dict[str, str]:
    """The templates with all that the worker knows and the trigger does not: the task, and when the
    job was created."""
    values: dict[str, object] = {name: getattr(owner, name) for name in OF_TASK}
    values |= {"start": _milliseconds(start), "start_time": _rfc3339(start)}
    return {field: _partly_filled(template, values) for field, template in templates.items()}


def _partly_filled(template: str, values: Mapping[str, object]) -> str:
    from string import Formatter
    from urllib.parse import quote

    url = ""
    for text, name, _, _ in Formatter().parse(template):
        url += text.replace("{", "{{").replace("}", "}}")
        if name is not None:
            known = str(values.get(name, ""))
            url += quote(known, safe="") or f"{{{name}}}"
    return url


def asked_for(templates: Mapping[str, str], pods: Sequence[ReplicaPod]) -> tuple[ReplicaPod, ...]:
    """The pods without what no template asks for. Node and container are known later than the rest,
    and links are stored again whenever something is new."""
    asked = "".join(templates.values())
    unused = {name: "" for name in ("node", "container_id") if f"{{{name}}}" not in asked}
    return tuple(pod._replace(**unused) for pod in pods)  # type: ignore[arg-type]  # of mypy


def fill_links(
    templates: Mapping[str, str],
    job: JobReference,
    pods: Sequence[ReplicaPod],
    finish: datetime | None,
) -> dict[str, str]:
    """The URLs by the keys of their XComs, without those that need values that are not known
    yet."""
    leader = next((pod for pod in pods if pod.leads), None)
    others = sorted((pod for pod in pods if not pod.leads), key=_order)
    urls = {}
    for link in LINKS:
        of_workers = isinstance(link, WorkerLogsLink)
        pod = next(iter(others), None) if of_workers else leader
        url = _fill(templates.get(link.template, ""), job, pod, finish)
        if url:
            urls[link.xcom_key] = url
    return urls


def log_links(
    template: str,
    job: JobReference,
    pods: Sequence[ReplicaPod],
    finish: datetime | None,
) -> list[dict[str, Any]]:
    """One link per pod, for the XCom `log_links`."""
    found = []
    for pod in pods:
        url = _fill(template, job, pod, finish)
        if url:
            found.append({"role": pod.role, "index": pod.index, "pod": pod.pod, "url": url})
    return found


def _order(pod: ReplicaPod) -> tuple[bool, int, str]:
    """Workers before parameter servers and others, then by index."""
    return pod.role.lower() not in ("worker", "node"), pod.index or 0, pod.pod


def _fill(template: str, job: JobReference, pod: ReplicaPod | None, finish: datetime | None) -> str:
    """The URL; "" if a value is unknown, or if the template is not valid."""
    from string import Formatter  # not needed to parse a DAG file
    from urllib.parse import quote

    end = finish or datetime.now(timezone.utc) + _OPEN_END
    values: dict[str, object] = {
        "namespace": job.namespace,
        "job": job.name,
        "finish": _milliseconds(end),
        "finish_time": _rfc3339(end),
    }
    if pod is not None:
        values |= {name: getattr(pod, name) for name in OF_REPLICA}
    try:
        parts = list(Formatter().parse(check_link("a link", template)))
    except InvalidSpec:  # stored by a trigger of another version of this package
        return ""
    url = ""
    for text, name, _, _ in parts:
        value = "" if name is None else values.get(name)
        if value is None or (name is not None and value == ""):
            return ""
        url += text + quote(str(value), safe="")
    return url


def _milliseconds(time: datetime) -> int:
    return int(time.timestamp() * 1000)


def _rfc3339(time: datetime) -> str:
    return time.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
