"""Buttons of a task: URLs made from templates as soon as what they ask for is known.

Airflow shows a button for each link that has a URL in the task's XComs. The operator stores those
that it can fill in at once, the trigger those that need the pods.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

from airflow.sdk import BaseOperatorLink

from airflow_kftrain.airflow_compat import link_option, stored_link
from airflow_kftrain.errors import InvalidSpec
from airflow_kftrain.kinds import JobReference
from airflow_kftrain.messages import ReplicaPod
from airflow_kftrain.specs.lifecycle import Links, check_link

OPTIONS = {name: f"{name}_url" for name in Links._fields}
"""Options of the section [kftrain] by the fields of Links."""

_OPEN_END = timedelta(days=1)
"""What {finish} is while nobody knows it: so much after now, since a viewer of logs wants an end
that is not in the past."""


class _StoredLink(BaseOperatorLink):
    """Airflow calls `get_link` after every run of the worker, and stores what comes back: so it
    gives what is stored already, lest a late URL is lost."""

    name = ""
    template = ""
    """The field of Links."""

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        links = getattr(operator, "links", None)
        if isinstance(links, Links) and self.template not in link_templates(links)[0]:
            return ""  # Airflow complains loudly where it finds nothing
        return stored_link(ti_key, self.xcom_key)


class TrainingJobLink(_StoredLink):
    """The custom resource, in a dashboard of the cluster say."""

    name = "Training job"
    template = "training_job"


class LeaderLogsLink(_StoredLink):
    """The log that tells the story: of the master, the launcher or the first worker."""

    name = "Leader logs"
    template = "leader_logs"


class WorkerLogsLink(_StoredLink):
    """The logs of the others; of the first of them where the URL is of one pod."""

    name = "Worker logs"
    template = "worker_logs"


class DashboardLink(_StoredLink):
    """Whatever else belongs to the job: metrics, TensorBoard."""

    name = "Dashboard"
    template = "dashboard"


LINKS = (TrainingJobLink(), LeaderLogsLink(), WorkerLogsLink(), DashboardLink())


def link_templates(links: Links) -> tuple[dict[str, str], list[str]]:
    """The templates by the fields of Links, those of the configuration where the author left them
    out; and what is wrong with the configuration, which is no reason to run no training."""
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


def fill_links(
    templates: Mapping[str, str],
    job: JobReference,
    pods: Sequence[ReplicaPod],
    start: datetime,
    finish: datetime | None,
) -> dict[str, str]:
    """URLs by the keys of their XComs; left out is what asks for something not known yet."""
    leader = next((pod for pod in pods if pod.leads), None)
    others = sorted((pod for pod in pods if not pod.leads), key=_order)
    urls = {}
    for link in LINKS:
        of_workers = isinstance(link, WorkerLogsLink)
        pod = next(iter(others), None) if of_workers else leader
        url = _fill(templates.get(link.template, ""), job, pod, start, finish)
        if url:
            urls[link.xcom_key] = url
    return urls


def log_links(
    template: str,
    job: JobReference,
    pods: Sequence[ReplicaPod],
    start: datetime,
    finish: datetime | None,
) -> list[dict[str, Any]]:
    """One a pod, for the XCom `log_links`."""
    found = []
    for pod in pods:
        url = _fill(template, job, pod, start, finish)
        if url:
            found.append({"role": pod.role, "index": pod.index, "pod": pod.pod, "url": url})
    return found


def _order(pod: ReplicaPod) -> tuple[bool, int, str]:
    """Workers before parameter servers and the like, then by their numbers."""
    return pod.role.lower() not in ("worker", "node"), pod.index or 0, pod.pod


def _fill(
    template: str,
    job: JobReference,
    pod: ReplicaPod | None,
    start: datetime,
    finish: datetime | None,
) -> str:
    """The URL; "" where not all that it asks for is known, or it is no template of ours."""
    from string import Formatter  # not needed to parse a DAG file
    from urllib.parse import quote

    values: dict[str, object] = {
        "namespace": job.namespace,
        "job": job.name,
        "start": _milliseconds(start),
        "finish": _milliseconds(finish or datetime.now(timezone.utc) + _OPEN_END),
    }
    if pod is not None:
        values |= {"pod": pod.pod, "container": pod.container, "role": pod.role, "index": pod.index}
    try:
        parts = list(Formatter().parse(check_link("a link", template)))
    except InvalidSpec:  # of another version of this package: the trigger's are stored
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
