"""`airflow-kftrain run FILE`: submits a manifest unchanged, and follows the job: its phase, its
replicas, the leader's log and the verdict."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import json
import os
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from airflow_kftrain.errors import ClusterError, InvalidSpec, KfTrainError
from airflow_kftrain.hooks import api_calls
from airflow_kftrain.hooks.training_job_async import AsyncTrainingJobHook
from airflow_kftrain.job_state import GONE, JobState, Phase, read_mapping, read_state, read_text
from airflow_kftrain.kinds import JobKind, find_kind
from airflow_kftrain.monitoring.pods import PodState, read_pod
from airflow_kftrain.monitoring.report import write_report
from airflow_kftrain.monitoring.text import wrapped
from airflow_kftrain.monitoring.waiting import waiting_words

_LOOK_EVERY = 10.0
_PAUSE = 0.5
_STARTED = ("Running", "Succeeded", "Failed")
_CONNECTION = "kubeconfig"


def main(words: list[str]) -> int:
    given = _arguments(words)
    connection = of_kubeconfig(given.kubeconfig) if given.kubeconfig else given.conn_id
    return run_file(connection, given.file, given.namespace)


def _arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="airflow-kftrain run",
        description="Submit a manifest as it is, follow the job, and exit with its verdict.",
        epilog="Exit code 0: the job has succeeded; 1: it has failed, or was deleted; 2: it could "
        "not be followed.",
    )
    parser.add_argument("file", type=Path, help="YAML or JSON; - for standard input")
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--conn-id", default="kubernetes_default", help="the Airflow connection (%(default)s)"
    )
    where.add_argument("--kubeconfig", type=Path, help="a kubeconfig to use instead")
    parser.add_argument(
        "--namespace",
        default="",
        help="the namespace, if the manifest names none (default: the connection's)",
    )
    return parser.parse_args(words)


def of_kubeconfig(file: Path) -> str:
    """Creates a connection, only for this process, from a kubeconfig."""
    extra = {"kube_config_path": str(file.expanduser().absolute())}
    connection = {"conn_type": "kubernetes", "extra": extra}
    os.environ[f"AIRFLOW_CONN_{_CONNECTION.upper()}"] = json.dumps(connection)
    return _CONNECTION


def run_file(
    connection: str, file: Path, namespace: str, is_up: Callable[[], bool] = lambda: True
) -> int:
    """Returns the exit code. `is_up` says whether a cluster that may end is still running."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # prints any log line, and at once
        sys.stdout.reconfigure(errors="backslashreplace", line_buffering=True)
    try:
        manifest = _read(file)
        kind = find_kind(manifest.get("apiVersion"), manifest.get("kind"))
        work = _run(connection, kind, manifest, namespace)
        return asyncio.run(_while_up(work, is_up))
    except (KfTrainError, OSError) as error:
        if isinstance(error, BrokenPipeError):  # nobody reads the output any more
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 1
        sys.stderr.write(f"error: {error}\n")
        return 2
    except KeyboardInterrupt:
        return 130


def _read(file: Path) -> dict[str, Any]:
    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidSpec("", f"{file} cannot be read: {error}") from error
    try:
        # Dates become strings.
        manifest = json.loads(json.dumps(yaml.safe_load(text), default=str))
    except (yaml.YAMLError, TypeError, ValueError, RecursionError) as error:
        why = " ".join(str(error).split())
        raise InvalidSpec("", f"this is not YAML: {why}") from error
    if not isinstance(manifest, dict):
        raise InvalidSpec("", f"{file} must contain one manifest, with apiVersion and kind")
    return manifest


async def _while_up(work: Coroutine[Any, Any, int], is_up: Callable[[], bool]) -> int:
    working = asyncio.create_task(work)
    while not (await asyncio.wait([working], timeout=0.5))[0]:
        if not is_up():
            working.cancel()
            await asyncio.wait([working])
            raise InvalidSpec("", "the cluster has been stopped")
    return working.result()


async def _run(connection: str, kind: JobKind, manifest: dict[str, Any], namespace: str) -> int:
    hook = AsyncTrainingJobHook(connection)
    with redirect_stdout(sys.stderr):  # Airflow prints its own messages there
        await hook.connect()
    metadata = dict(read_mapping(manifest.get("metadata")))
    if not (metadata.get("name") or metadata.get("generateName")):
        raise InvalidSpec("metadata.name", "is required")
    own = metadata.get("namespace")
    if own and namespace and own != namespace:
        raise InvalidSpec("metadata.namespace", f"is not {namespace}", value=own)
    metadata["namespace"] = namespace or own or await hook.namespace()
    created = await hook.ask(api_calls.create_job(kind, {**manifest, "metadata": metadata}))
    return await _Run(hook, kind, created).follow()


class _Pod(NamedTuple):
    uid: str
    state: PodState


class _Run:
    def __init__(
        self, hook: AsyncTrainingJobHook, kind: JobKind, created: Mapping[str, Any]
    ) -> None:
        self._hook = hook
        self._kind = kind
        metadata = read_mapping(created.get("metadata"))
        self._name = read_text(metadata.get("name"))
        self._namespace = read_text(metadata.get("namespace"))
        self._uid = _uid(created)
        self._log: asyncio.Task[None] | None = None
        self._leader = ("", "")
        """Name and uid of the pod whose log is shown."""
        _say(f"{kind.kind.lower()}/{self._name} created")

    async def follow(self) -> int:
        try:
            return await self._follow()
        finally:  # the task that shows the log must not outlive this call
            if self._log is not None:
                self._log.cancel()
                await asyncio.gather(self._log, return_exceptions=True)

    async def _follow(self) -> int:
        state: JobState | None = None
        told = ""
        async with aclosing(self._states()) as states:
            async for now in states:
                state = now.after(state)
                found = await self._hook.pods(self._kind, self._namespace, self._name)
                pods = [_Pod(_uid(pod), read_pod(self._kind, pod)) for pod in found]
                self._follow_leader(pods)
                if state.phase.is_final and self._log is not None:
                    await self._log  # the verdict comes last
                if (words := self._words(state, pods)) != told:
                    told = words
                    _say(words)
                if state.phase.is_final:
                    return await self._end(state, pods)
        raise AssertionError("a job that is gone has ended")

    async def _states(self) -> AsyncGenerator[JobState, None]:
        """Yields the state whenever it changes, and now and then, since its pods change, too."""
        place = (self._kind, self._namespace, "")
        only = f"metadata.name={self._name}"
        while True:
            version, listed = await self._hook.snapshot(*place, only)
            found = [job async for job in listed]
            yield self._state(found[0]) if found else GONE
            changes = self._hook.watch(*place, version, _LOOK_EVERY, only)
            with contextlib.suppress(ClusterError):  # the next read reports the problem
                async with aclosing(changes):
                    async for what, job in changes:
                        if what != "BOOKMARK":
                            yield GONE if what == "DELETED" else self._state(job)
            await asyncio.sleep(_PAUSE)

    def _state(self, found: Mapping[str, Any]) -> JobState:
        return read_state(self._kind, found) if _uid(found) == self._uid else GONE

    def _words(self, state: JobState, pods: Sequence[_Pod]) -> str:
        if state.phase.is_final:  # pods that still run are about to end
            return state.phase.value
        counts = ", ".join(
            f"{each.role} {each.active} active" for each in state.replicas if each.active
        )
        words = f"{state.phase.value}{f' ({counts})' if counts else ''}"
        if state.phase in (Phase.QUEUED, Phase.STARTING):
            states = [pod.state for pod in pods]
            words = f"{words}: {waiting_words(self._kind, state, states)}"
        return words

    def _follow_leader(self, pods: Sequence[_Pod]) -> None:
        for uid, pod in pods:
            name, before = self._leader
            is_next = self._log is None or (pod.name == name and uid != before)
            if is_next and pod.leads and pod.phase in _STARTED:
                self._leader = pod.name, uid
                self._log = asyncio.create_task(self._copy_log(pod))

    async def _copy_log(self, pod: PodState) -> None:
        try:
            async for line in self._hook.follow_log(self._namespace, pod.name, pod.container):
                _say(f"[{pod.name}] {line}")
        except KfTrainError as error:  # the job continues
            _say(f"[{pod.name}] {error}")

    async def _end(self, state: JobState, pods: Sequence[_Pod]) -> int:
        if state.phase is Phase.SUCCEEDED:
            return 0
        about = [self._uid, *(pod.uid for pod in pods)]
        events = await self._hook.events(self._namespace, about)
        states = [pod.state for pod in pods]
        _say(wrapped(write_report(self._kind, state, states, events=events)))
        return 1


def _uid(found: Mapping[str, Any]) -> str:
    return read_text(read_mapping(found.get("metadata")).get("uid"))


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
