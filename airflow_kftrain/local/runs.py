"""Submits a manifest and follows the job: phase, replicas, the leader's log, and the verdict."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

import yaml

from airflow_kftrain.job_state import GONE, JobState, Phase, read_state
from airflow_kftrain.kinds import JobKind, find_kind
from airflow_kftrain.local.agent.logs import CannotRun
from airflow_kftrain.local.api_client import ApiClient, Cluster, Object, core
from airflow_kftrain.monitoring.pods import read_pod
from airflow_kftrain.monitoring.report import write_report
from airflow_kftrain.monitoring.waiting import waiting_words

Say = Callable[[str], object]


async def run_file(cluster: Cluster, text: str, namespace: str | None, say: Say) -> int:
    """0 if the job succeeded, else 1. Raises KfTrainError for what is no job."""
    try:
        manifest = json.loads(json.dumps(yaml.safe_load(text), default=str))  # it has no dates
    except (yaml.YAMLError, TypeError, ValueError, RecursionError) as error:
        raise CannotRun(f"this is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(manifest, Mapping):
        raise CannotRun("one manifest is wanted, a mapping with apiVersion and kind")
    kind = find_kind(manifest.get("apiVersion"), manifest.get("kind"))
    metadata = manifest.get("metadata")
    own = metadata.get("namespace") if isinstance(metadata, dict) else None
    namespace = quote(str(namespace or own or "default"), safe="")
    async with ApiClient(cluster) as api:
        path = f"/apis/{kind.api_version}/namespaces/{namespace}/{kind.plural}"
        created = await api.create(f"{path}?fieldValidation=Strict", dict(manifest))
        return await _Run(api, kind, created, path, say).follow()


class _Run:
    def __init__(self, api: ApiClient, kind: JobKind, created: Object, path: str, say: Say) -> None:
        self._api = api
        self._kind = kind
        self._name: str = created["metadata"]["name"]
        self._namespace: str = created["metadata"]["namespace"]
        self._path = path
        self._say = say
        self._log: asyncio.Task[None] | None = None
        self._leader = ("", "")
        """Name and uid of the pod whose log it is."""
        say(f"{kind.kind.lower()}/{self._name} created")

    async def follow(self) -> int:
        try:
            return await self._follow()
        finally:  # the log does not outlive who reads it
            if self._log is not None:
                self._log.cancel()
                await asyncio.gather(self._log, return_exceptions=True)

    async def _follow(self) -> int:
        state: JobState | None = None
        told = ""
        selector = f"metadata.name={self._name}"
        async for what, found in self._api.follow(self._path, fieldSelector=selector):
            if what == "LISTED":
                found, what = (found[0], "") if found else ({}, "DELETED")
            now = GONE if what == "DELETED" else read_state(self._kind, found)
            state = now.after(state)
            pods = await self._pods()
            self._follow_leader(pods)
            if state.phase.is_final and self._log is not None:
                await self._log  # the verdict comes last
            if (words := self._words(state, pods)) != told:
                told = words
                self._say(words)
            if state.phase.is_final:
                return await self._end(state, pods)
        return 1

    def _words(self, state: JobState, pods: list[Object]) -> str:
        if state.phase.is_final:  # who still runs then, is about to end
            return state.phase.value
        counts = ", ".join(
            f"{each.role} {each.active} active" for each in state.replicas if each.active
        )
        words = f"{state.phase.value}{f' ({counts})' if counts else ''}"
        if state.phase in (Phase.QUEUED, Phase.STARTING):
            states = [read_pod(self._kind, pod) for pod in pods]
            words = f"{words}: {waiting_words(self._kind, state, states)}"
        return words

    async def _pods(self) -> list[Object]:
        selector = self._kind.selectors.pods.format(name=self._name)
        return (await self._api.list(core(self._namespace, "pods"), labelSelector=selector))[0]

    def _follow_leader(self, pods: list[Object]) -> None:
        started = ("Running", "Succeeded", "Failed")
        for pod in pods:
            state, metadata = read_pod(self._kind, pod), pod["metadata"]
            name, uid = self._leader
            is_next = self._log is None or (metadata["name"] == name and metadata["uid"] != uid)
            if is_next and state.leads and state.phase in started:
                self._leader = metadata["name"], metadata["uid"]
                self._log = asyncio.create_task(self._copy_log(pod))

    async def _copy_log(self, pod: Object) -> None:
        name = pod["metadata"]["name"]
        names = [each["name"] for each in pod["spec"]["containers"]]
        container = self._kind.container if self._kind.container in names else names[0]
        path = core(self._namespace, "pods", name, "log")
        async for line in self._api.lines(path, container=container, follow="true"):
            self._say(f"[{name}] {line}")

    async def _end(self, state: JobState, pods: list[Object]) -> int:
        if state.phase is Phase.SUCCEEDED:
            return 0
        events, _ = await self._api.list(core(self._namespace, "events"))
        states = [read_pod(self._kind, pod) for pod in pods]
        ours = [each for each in events if self._is_ours(each)]
        self._say(write_report(self._kind, state, states, events=ours))
        return 1

    def _is_ours(self, event: Mapping[str, Any]) -> bool:
        return str((event.get("involvedObject") or {}).get("name", "")).startswith(self._name)
