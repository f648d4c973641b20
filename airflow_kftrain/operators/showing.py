"""What a task shows of its job: the manifest in its log, XComs, buttons."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from airflow_kftrain.airflow_compat import hides, push_link, redacted
from airflow_kftrain.job_state import read_mapping, read_time
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

    class Dumper(yaml.SafeDumper):
        """Writes programs in lines, as their authors did."""

    def in_lines(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
        style = "|" if "\n" in text else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style)

    Dumper.add_representer(str, in_lines)
    shown = _masked(redacted(manifest))
    return str(yaml.dump(shown, Dumper=Dumper, sort_keys=False, allow_unicode=True))


def _masked(value: Any) -> Any:
    """Without the values of variables whose names say that they are secret: Airflow knows names
    only as keys, and a container's variables are a list."""
    if isinstance(value, Mapping):
        hidden = isinstance(value.get("name"), str) and "value" in value and hides(value["name"])
        masked = {key: _masked(item) for key, item in value.items()}
        return {**masked, "value": _HIDDEN} if hidden else masked
    if isinstance(value, list | tuple):
        return [_masked(item) for item in value]
    # One by one, since Airflow does not look deeper than five levels.
    return redacted(value) if isinstance(value, str) else value


def show_manifest(manifest: Mapping[str, Any], log: Logger) -> None:
    """Folded in the task log."""
    log.info("::group::%s as it is submitted", manifest["kind"])
    log.info("%s", manifest_text(manifest))
    log.info("::endgroup::")


def announce(keeper: LinkKeeper, api_version: str) -> None:
    """The XCom `job`, and all links that are known before there are pods."""
    value = {"api_version": api_version, **keeper.job._asdict()}
    keeper.instance.xcom_push(key="job", value=value)
    keeper.warn()
    keeper.store((), None)


class LinkKeeper:
    """Stores the links of a task instance as its worker gets to know them; while it is deferred,
    its trigger does."""

    def __init__(
        self,
        instance: Any,
        links: Links,
        job: JobReference,
        created: datetime,
        expected: Sequence[ReplicaPod],
        log: Logger,
    ) -> None:
        """`expected` are the pods that the job will have; what is found in their place counts."""
        self.instance = instance
        self._templates, self._problems = link_templates(links)
        self.job = job
        self._created = created
        self._log = log
        self._pods = {pod.pod: pod for pod in expected}

    def warn(self) -> None:
        for problem in self._problems:
            self._log.warning("A button is missing, Airflow's configuration is wrong. %s", problem)

    def store(self, pods: Sequence[ReplicaPod], finished: datetime | None) -> None:
        """Of pods that were there once, too: their logs may be kept elsewhere."""
        self._pods.update({pod.pod: pod for pod in pods})
        known = (self.job, list(self._pods.values()), self._created, finished)
        for key, url in fill_links(self._templates, *known).items():
            push_link(self.instance, key, url)
        entries = log_links(self._templates.get("worker_logs", ""), *known)[:_MOST_LOG_LINKS]
        if entries:
            self.instance.xcom_push(key="log_links", value=entries)

    async def pods_known(self, pods: Sequence[ReplicaPod]) -> None:
        """For a watch, which no link may end."""
        try:
            await asyncio.to_thread(self.store, pods, None)
        except Exception as error:  # noqa: BLE001  # Airflow's own, of any kind
            self._log.warning("Cannot store the links: %s", error)


def keeper_for(
    instance: Any, links: Links, kind: JobKind, resource: Mapping[str, Any], log: Logger
) -> LinkKeeper:
    metadata = resource["metadata"]
    job = JobReference(kind.kind, metadata["namespace"], metadata["name"], metadata["uid"])
    pods = tuple(predicted_pods(kind, resource))
    return LinkKeeper(instance, links, job, created_at(resource), pods, log)


def created_at(resource: Mapping[str, Any]) -> datetime:
    said = read_mapping(resource.get("metadata")).get("creationTimestamp")
    return read_time(said) or datetime.now(timezone.utc)


def predicted_pods(kind: JobKind, resource: Mapping[str, Any]) -> Iterator[ReplicaPod]:
    """The pods that a job will have, where the operator makes their names from the job's alone."""
    name = resource["metadata"]["name"]
    groups = role_groups(kind, {"spec": {}, **resource})
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
