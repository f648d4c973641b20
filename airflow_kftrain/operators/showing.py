"""What a task shows of its job: the manifest in its log, XComs, buttons."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from airflow_kftrain.airflow_compat import hides, push_link, redacted
from airflow_kftrain.kinds import JobKind, JobReference, Role
from airflow_kftrain.links import fill_links, link_templates, log_links
from airflow_kftrain.manifests.places import containers_of, role_groups
from airflow_kftrain.messages import ReplicaPod

if TYPE_CHECKING:
    from airflow.sdk.types import Logger

    from airflow_kftrain.specs.lifecycle import Links

_MOST_LOG_LINKS = 256
_HIDDEN = "***"


def manifest_text(manifest: Mapping[str, Any]) -> str:
    """The manifest in YAML, without secrets."""
    import yaml

    text: str = yaml.safe_dump(_masked(redacted(manifest)), sort_keys=False, allow_unicode=True)
    return text


def _masked(value: Any) -> Any:
    """Without the values of variables whose names say that they are secret: Airflow knows names
    only as keys, and a container's variables are a list."""
    if isinstance(value, Mapping):
        hidden = isinstance(value.get("name"), str) and "value" in value and hides(value["name"])
        masked = {key: _masked(item) for key, item in value.items()}
        return {**masked, "value": _HIDDEN} if hidden else masked
    if isinstance(value, list | tuple):
        return [_masked(item) for item in value]
    return value


def show_manifest(manifest: Mapping[str, Any], log: Logger) -> None:
    """Folded in the task log."""
    log.info("::group::%s as it is submitted", manifest["kind"])
    log.info("%s", manifest_text(manifest))
    log.info("::endgroup::")


def announce(
    instance: Any,
    kind: JobKind,
    job: JobReference,
    resource: Mapping[str, Any],
    links: Links,
    created: datetime,
    log: Logger,
) -> None:
    """The XCom `job`, and all links that are known before there are pods."""
    instance.xcom_push(key="job", value={"api_version": kind.api_version, **job._asdict()})
    _, problems = link_templates(links)
    for problem in problems:
        log.warning(
            "There is no button for it, since Airflow's configuration is wrong. %s", problem
        )
    LinkKeeper(instance, links, job, created).store(list(predicted_pods(kind, resource)), None)


class LinkKeeper:
    """Stores the links of a task instance as its worker gets to know them; while it is deferred,
    its trigger does."""

    def __init__(self, instance: Any, links: Links, job: JobReference, created: datetime) -> None:
        self._instance = instance
        self._templates, _ = link_templates(links)
        self._job = job
        self._created = created

    def store(self, pods: Sequence[ReplicaPod], finished: datetime | None) -> None:
        known = (self._job, pods, self._created, finished)
        for key, url in fill_links(self._templates, *known).items():
            push_link(self._instance, key, url)
        entries = log_links(self._templates.get("worker_logs", ""), *known)[:_MOST_LOG_LINKS]
        if entries:
            self._instance.xcom_push(key="log_links", value=entries)

    async def pods_known(self, pods: Sequence[ReplicaPod]) -> None:
        await asyncio.to_thread(self.store, pods, None)


def predicted_pods(kind: JobKind, resource: Mapping[str, Any]) -> Iterator[ReplicaPod]:
    """The pods that a job will have, where the operator makes their names from the job's alone."""
    name = resource["metadata"]["name"]
    groups = role_groups(kind, resource)
    present = [role for role in kind.roles if role.name in groups]
    for number, role in enumerate(present):
        if role.named:
            yield from _predicted(kind, role, groups[role.name], name, leads=number == 0)


def _predicted(
    kind: JobKind, role: Role, group: Mapping[str, Any], name: str, *, leads: bool
) -> Iterator[ReplicaPod]:
    word = role.name.lower()
    names = [
        container["name"]
        for path, container in containers_of(group["template"])
        if path.startswith("spec.containers")
    ]
    container = kind.container if kind.container in names else names[0]
    for index in range(min(int(group.get("replicas", 1)), _MOST_LOG_LINKS)):
        pod = role.pod.format(job=name, role=word, index=index)
        yield ReplicaPod(word, index, pod, container, leads=leads and index == 0)
