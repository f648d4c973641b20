"""Shows the job of a task: the manifest in its log and in the Rendered tab, XComs, buttons."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from airflow_kftrain.airflow_compat import (
    hides,
    longest_rendered,
    push_link,
    redacted,
    store_rendered,
)
from airflow_kftrain.job_state import read_mapping, read_time
from airflow_kftrain.kinds import JobKind, JobReference, Role
from airflow_kftrain.links import (
    LINKS,
    asked_for,
    fill_links,
    filled_at_once,
    link_templates,
    log_links,
)
from airflow_kftrain.manifests.code import CODE_ANNOTATION
from airflow_kftrain.manifests.places import containers_of, role_groups, texts_by_path
from airflow_kftrain.messages import SHOWN_KEY, MaskedText, ReplicaPod
from airflow_kftrain.ownership import read_claim
from airflow_kftrain.specs.shapes import plain

if TYPE_CHECKING:
    from airflow.sdk.types import Logger

    from airflow_kftrain.specs.lifecycle import Links

_MOST_LOG_LINKS = 256
_HIDDEN = "***"
_OPEN_MAPPINGS = ("annotations", "volumeAttributes")
"""Fields whose keys authors choose."""
_MOST_MASKED = 16_000
"""Characters. Airflow stores them with the trigger."""


def manifest_text(manifest: Mapping[str, Any], *, whole: bool = False) -> str:
    """The manifest in YAML, without secrets. The payload is included only in the `whole`
    manifest."""
    import yaml

    class Dumper(yaml.SafeDumper):
        """Writes strings with several lines as blocks."""

    def in_lines(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
        style = "|" if "\n" in text else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style)

    Dumper.add_representer(str, in_lines)
    shown = _masked(manifest if whole else _without_code(manifest))
    return str(yaml.dump(shown, Dumper=Dumper, sort_keys=False, allow_unicode=True))


def _masked(value: Any, *, by_key: bool = False) -> Any:
    """Hides secrets that Airflow knows, and values whose names say that they are secret.

    Only names that authors choose count: those of variables and, `by_key`, the keys of annotations.
    Fields of Kubernetes, such as secretKeyRef and imagePullSecrets, hold only names.
    """
    if isinstance(value, Mapping):
        name = value.get("name")
        masked = {
            key: _HIDDEN
            if by_key and isinstance(item, str) and hides(key)
            else _masked(item, by_key=key in _OPEN_MAPPINGS)
            for key, item in value.items()
        }
        is_hidden = isinstance(name, str) and isinstance(value.get("value"), str) and hides(name)
        return {**masked, "value": _HIDDEN} if is_hidden else masked
    if isinstance(value, list | tuple):
        return [_masked(item) for item in value]
    # One by one: of a mapping, Airflow masks by any key, and only the first five levels.
    return redacted(value) if isinstance(value, str) else value


def masked_fields(manifest: Mapping[str, Any]) -> list[str]:
    """The paths of the values that `manifest_text` masks."""
    pairs = zip(texts_by_path(manifest), texts_by_path(_masked(manifest)), strict=True)
    return [path[1:] for (path, text), (_, shown) in pairs if text != shown]


def _without_code(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {
            key: f"({len(item)} bytes)" if key == CODE_ANNOTATION else _without_code(item)
            for key, item in value.items()
        }
    return [_without_code(item) for item in value] if isinstance(value, list) else value


def show_manifest(manifest: Mapping[str, Any], log: Logger) -> None:
    """Logs the manifest, folded."""
    log.info("::group::%s as it is submitted", manifest["kind"])
    log.info("%s", manifest_text(manifest))
    log.info("::endgroup::")


def show_rendered(parameters: Mapping[str, Any], manifest: Mapping[str, Any], log: Logger) -> None:
    """Replaces what Airflow has stored for the Rendered tab: it shows nouns as lists."""
    try:
        store_rendered(rendered_fields(parameters, manifest))
    except Exception as error:  # noqa: BLE001  # Airflow's own, of any kind
        log.warning("Cannot store what the Rendered tab shows: %s", error)


def rendered_fields(parameters: Mapping[str, Any], manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters, with the fields of nouns by their names, and the manifest as it is submitted.
    Without secrets, and no longer than Airflow allows."""
    fields = redacted({name: _masked(_readable(value)) for name, value in parameters.items()})
    shown = {**fields, "manifest": manifest_text(manifest)}
    return {name: _shortened(value) for name, value in shown.items()}


def _readable(value: Any) -> Any:
    """A value in JSON. Fields of nouns that are None are left out."""
    value = plain(value) if hasattr(value, "openapi_types") else value
    if hasattr(value, "_asdict"):
        given = value._asdict().items()
        return {name: _readable(item) for name, item in given if item is not None}
    if isinstance(value, Mapping):
        return {str(key): _readable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_readable(item) for item in value]
    return value if value is None or isinstance(value, str | bool | int | float) else str(value)


def _shortened(value: Any) -> Any:
    most, text = longest_rendered(), str(value)
    if len(text) <= most:
        return value
    return f"{text[:most]}\n# Cut off: [core] max_templated_field_length is {most}."


def masked_texts(
    manifest: Mapping[str, Any], log: Logger, hidden: Iterable[str] = ()
) -> tuple[MaskedText, ...]:
    """The texts that the triggerer has to mask, since it has not read the secrets itself. It cannot
    read `hidden` texts, which the pods get in a packed form."""
    if any(redacted(text) != text for text in hidden):
        log.warning(
            "An argument of the function contains a secret: while the task is deferred, no logs of "
            "pods are shown, and its report quotes none. Use env=FromSecret(...) instead."
        )
        return (MaskedText("", _HIDDEN),)  # this path does not exist, so no output is shown
    found: dict[str, MaskedText] = {}
    for path, text in texts_by_path(manifest["spec"]):
        shown = redacted(text)
        if shown != text and text not in found:
            found[text] = MaskedText(path, shown)
    if sum(len(each.path) + len(each.shown) for each in found.values()) <= _MOST_MASKED:
        return tuple(found.values())
    log.warning(
        "Too much of the manifest is secret to pass it to the triggerer: while the task is "
        "deferred, no logs of pods are shown, and its report quotes none."
    )
    return (MaskedText("", _HIDDEN),)  # this path does not exist, so no output is shown


def announce(
    keeper: LinkKeeper,
    api_version: str,
    cluster: str,
    masked: tuple[MaskedText, ...],
    earlier: tuple[str, ...],
) -> None:
    """Stores the XCom `job`, and all links that do not need pods."""
    value = {"api_version": api_version, **keeper.job._asdict(), "cluster": cluster}
    if masked:
        value["masked"] = [each._asdict() for each in masked]
    if earlier:
        value["earlier"] = list(earlier)
    keeper.instance.xcom_push(key="job", value=value)
    keeper.warn()
    keeper.begin()


class LinkKeeper:
    """Stores the links of a task instance as soon as they are known: here in the worker, and in the
    trigger while the task is deferred."""

    def __init__(
        self,
        instance: Any,
        links: Links,
        job: JobReference,
        resource: Mapping[str, Any],
        expected: Sequence[ReplicaPod],
        log: Logger,
    ) -> None:
        """`expected` are the pods that the job will probably have. Pods that are found replace
        them."""
        self.instance = instance
        templates, self._problems = link_templates(links)
        owner = read_claim(resource).owner
        self.templates = filled_at_once(templates, owner, created_at(resource))
        self.job = job
        self._log = log
        self._pods = {pod.pod: pod for pod in expected}

    def warn(self) -> None:
        for problem in self._problems:
            self._log.warning(
                "A button is missing because Airflow's configuration is wrong. %s", problem
            )

    def begin(self) -> None:
        """Stores all links, empty if nothing is known yet: Airflow logs an error in the task's log
        when it reads a link that was never stored."""
        self._try_to_store((), None, all_links=True)

    def store(self, pods: Sequence[ReplicaPod], finished: datetime | None) -> None:
        """Stores the links, even those of pods that are gone: their logs may be kept elsewhere."""
        self._try_to_store(pods, finished, all_links=False)

    def _try_to_store(
        self, pods: Sequence[ReplicaPod], finished: datetime | None, *, all_links: bool
    ) -> None:
        """An error of Airflow is only logged: it must not end a training."""
        try:
            self._store(pods, finished, all_links)
        except Exception as error:  # noqa: BLE001  # Airflow's own, of any kind
            self._log.warning("Cannot store the links: %s", error)

    def _store(
        self, pods: Sequence[ReplicaPod], finished: datetime | None, all_links: bool
    ) -> None:
        self._pods.update({pod.pod: pod for pod in pods})
        known = (self.job, list(self._pods.values()), finished)
        keys = [link.xcom_key for link in LINKS if link.template in self.templates]
        urls = dict.fromkeys(keys, "") if all_links else {}
        for key, url in (urls | fill_links(self.templates, *known)).items():
            push_link(self.instance, key, url)
        entries = log_links(self.templates.get("worker_logs", ""), *known)[:_MOST_LOG_LINKS]
        if entries:
            self.instance.xcom_push(key="log_links", value=entries)

    async def show(self, value: dict[str, Any]) -> None:
        """Writes the XCom `kftrain`. Called by a watch."""
        try:
            await asyncio.to_thread(push_link, self.instance, SHOWN_KEY, value)
        except Exception as error:  # noqa: BLE001  # Airflow's own, of any kind
            self._log.warning("Cannot store the XCom `kftrain`: %s", error)

    async def pods_known(self, pods: Sequence[ReplicaPod]) -> None:
        """Called by a watch."""
        known = asked_for(self.templates, pods)
        if any(self._pods.get(pod.pod) != pod for pod in known):
            await asyncio.to_thread(self.store, known, None)


def keeper_for(
    instance: Any, links: Links, kind: JobKind, resource: Mapping[str, Any], log: Logger
) -> LinkKeeper:
    metadata = resource["metadata"]
    job = JobReference(kind.kind, metadata["namespace"], metadata["name"], metadata["uid"])
    pods = tuple(predicted_pods(kind, resource))
    return LinkKeeper(instance, links, job, resource, pods, log)


def created_at(resource: Mapping[str, Any]) -> datetime:
    said = read_mapping(resource.get("metadata")).get("creationTimestamp")
    return read_time(said) or datetime.now(timezone.utc)


def predicted_pods(kind: JobKind, resource: Mapping[str, Any]) -> Iterator[ReplicaPod]:
    """The pods that a job will have, if their names follow from the job's name."""
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
