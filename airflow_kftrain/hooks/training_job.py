"""The hook of workers: talks to the cluster of an Airflow connection, and waits for the answers.

It holds cncf's hook for the credentials, so that every kind of connection works, and makes its own
calls. Not for an event loop: that is training_job_async.
"""

from __future__ import annotations

import contextlib
import json
import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar
from urllib.parse import urlencode

from airflow_kftrain.errors import ClusterError
from airflow_kftrain.hooks import api_calls, credentials, talks
from airflow_kftrain.hooks.answers import (
    Answer,
    Body,
    Lines,
    check,
    is_for_nobody,
    read_answer,
    unreachable,
)
from airflow_kftrain.hooks.api_calls import Call, LogQuery
from airflow_kftrain.hooks.talks import Objects, Outside, Pause, Talk
from airflow_kftrain.job_state import read_mapping, read_mappings, read_text
from airflow_kftrain.kinds import JobKind

T = TypeVar("T")

_log = logging.getLogger(__name__)


class TrainingJobHook:
    """Jobs of one cluster. All its methods raise ClusterError."""

    def __init__(self, connection: str | None) -> None:
        """Nothing is read or sent before the first call. None: the default kubeconfig, or the
        pod's own account."""
        self.connection = connection
        self._outside = Outside()
        self._lock = threading.Lock()
        self._held: Any = None
        self._mpi_version = ""

    def namespace(self) -> str:
        """Where jobs go whose author names no namespace."""
        return credentials.choose_namespace(self._extras())

    def source(self) -> str:
        """Where the credentials come from, in words."""
        return credentials.described(self._extras())

    def server(self) -> str:
        """The address that the credentials lead to; nothing is sent."""
        return credentials.shown_server(self._client().configuration.host, self.connection)

    def resolve_mpi_version(self) -> str:
        """Which MPIJob the cluster serves: "v2beta1" or "v1"; raises NotServed."""
        if not self._mpi_version:
            self._mpi_version = self.talk(talks.mpi_version(self._outside))
        return self._mpi_version

    def submit(self, kind: JobKind, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """The job as created, or as an earlier call for the same owner created it."""
        return self.talk(talks.submit(kind, manifest, self._outside))

    def get(self, kind: JobKind, namespace: str, name: str) -> dict[str, Any] | None:
        return self.talk(talks.find(api_calls.get_job(kind, namespace, name), self._outside))

    def list(self, kind: JobKind, namespace: str, selector: str = "") -> Iterator[dict[str, Any]]:
        """In pages, which are fetched as they are needed."""
        token, limit = "", talks.FIRST_PAGE
        while True:
            call = api_calls.list_page(kind, namespace, selector, limit=limit, token=token)
            answer = self.talk(
                talks.patiently(call, self._outside.clock() + talks.PATIENCE, self._outside)
            )
            page = read_answer(call, answer)
            items = read_mappings(page.get("items"))
            yield from (dict(item) for item in items)
            token = read_text(read_mapping(page.get("metadata")).get("continue"))
            if not token:
                return
            limit = talks.next_limit(answer, len(items))

    def patch(
        self, kind: JobKind, namespace: str, name: str, patch: Mapping[str, Any]
    ) -> dict[str, Any]:
        """A merge patch; with `metadata.resourceVersion` in it, Conflict if the job has changed."""
        return self.talk(
            talks.ask(api_calls.patch_job(kind, namespace, name, patch), self._outside)
        )

    def delete(
        self,
        kind: JobKind,
        namespace: str,
        name: str,
        *,
        uid: str,
        resource_version: str | None = None,
        foreground: bool = False,
    ) -> bool:
        """False if that job is gone already; Conflict if it is not in this version any more."""
        get = api_calls.get_job(kind, namespace, name)
        call = api_calls.delete_job(
            kind,
            namespace,
            name,
            uid=uid,
            resource_version=resource_version,
            foreground=foreground,
        )
        return self.talk(talks.delete(call, get, uid, self._outside))

    def pods(self, kind: JobKind, namespace: str, name: str) -> Objects:
        """Of a job, at most a thousand."""
        return self.talk(talks.pods(kind, namespace, name, self._outside))

    def events(self, namespace: str, about: Sequence[str]) -> Objects:
        """About the first few of these uids or names, oldest first; none if that is forbidden."""
        return self.talk(talks.events(namespace, about, self._outside))

    def log(
        self,
        namespace: str,
        pod: str,
        container: str,
        *,
        previous: bool = False,
        tail_lines: int | None = None,
        limit_bytes: int | None = None,
        since: datetime | None = None,
        timestamps: bool = False,
    ) -> str:
        """With `tail_lines`, `limit_bytes` keeps the end of them, else the beginning."""
        asked = LogQuery(
            namespace, pod, container, previous, tail_lines, limit_bytes, since, timestamps
        )
        return self.talk(talks.ask_for_text(api_calls.read_log(asked), self._outside))

    def follow_log(
        self,
        namespace: str,
        pod: str,
        container: str,
        *,
        since: datetime | None = None,
        timestamps: bool = False,
    ) -> Iterator[str]:
        """Line by line as it is written, until the container ends."""
        asked = LogQuery(namespace, pod, container, since=since, timestamps=timestamps, follow=True)
        call = api_calls.read_log(asked)
        lines = Lines(credentials.LONGEST_LOG_LINE)
        with self._open(call, None) as response:
            if response.status >= 300:
                check(call, self._read(call, response))
            for piece in response.stream(1 << 16):
                yield from (line.decode("utf-8", "replace") for line in lines.feed(piece))
            yield from (line.decode("utf-8", "replace") for line in lines.rest())

    def ask(self, call: Call) -> dict[str, Any]:
        """What is answered to one call of api_calls."""
        return self.talk(talks.ask(call, self._outside))

    def talk(self, talk: Talk[T]) -> T:
        """Carries calls and answers to and fro."""
        try:
            step = next(talk)
            while True:
                if isinstance(step, Pause):
                    _log.warning("%s Trying again in %.0f s.", step.why, step.seconds)
                    time.sleep(step.seconds)
                    step = talk.send(None)
                    continue
                try:
                    answer = self._send(step)
                except ClusterError as error:
                    step = talk.throw(error)
                else:
                    step = talk.send(answer)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    def _send(self, call: Call) -> Answer:
        with self._open(call, credentials.ANSWER_SECONDS) as response:
            return self._read(call, response)

    def _read(self, call: Call, response: Any) -> Answer:
        body = Body(call)
        for piece in response.stream(1 << 16):
            body.feed(piece)
        headers = {name.lower(): value for name, value in response.headers.items()}
        answer = Answer(response.status, headers, body.text(), self.server())
        if is_for_nobody(answer):
            self._forget(self._client())
        return answer

    @contextlib.contextmanager
    def _open(self, call: Call, seconds: float | None) -> Iterator[Any]:
        """The answer as it begins. Credentials that are not taken are made anew, once."""
        from urllib3.exceptions import HTTPError

        client = self._client()
        try:
            response = self._request(client, call, seconds)
            if response.status == 401:
                response.close()
                self._forget(client)
                response = self._request(self._client(), call, seconds)
            with contextlib.closing(response):
                yield response
        except (HTTPError, OSError) as error:
            raise unreachable(call, self.server(), error) from error

    def _request(self, client: Any, call: Call, seconds: float | None) -> Any:
        from urllib3.exceptions import HTTPError

        try:
            return _request(client, call, seconds)
        except HTTPError:
            raise
        except ValueError:  # it may quote the token
            raise credentials.unsendable(self.connection) from None

    def _client(self) -> Any:
        with self._lock:
            if self._held is None:
                try:
                    self._held = _connect(self.connection)
                except ClusterError:
                    raise
                except Exception as error:
                    raise credentials.bad_connection(self.connection, error) from error
            return self._held

    def _forget(self, client: Any) -> None:
        """Its credentials are not taken any more: the next call makes them anew."""
        with self._lock:
            if self._held is client:
                self._held = None

    def _extras(self) -> dict[str, Any]:
        try:
            return dict(_cncf_hook(self.connection).conn_extras)
        except Exception as error:
            raise credentials.bad_connection(self.connection, error) from error


def _connect(connection: str | None) -> Any:
    hook = _cncf_hook(connection)
    client = hook.get_conn()
    credentials.check_address(client.configuration.host, connection)
    if (
        credentials.is_on(hook.conn_extras, "disable_verify_ssl")
        and client.configuration.verify_ssl
    ):
        # The oldest cncf-kubernetes forgets it where there is a kubeconfig.
        client.configuration.verify_ssl = False
        client = type(client)(configuration=client.configuration)
    return client


def _cncf_hook(connection: str | None) -> Any:
    from airflow.providers.cncf.kubernetes.hooks.kubernetes import KubernetesHook

    hook = KubernetesHook(conn_id=connection)
    hook.conn_id = connection  # else None would be the connection kubernetes_default
    return hook


def _request(client: Any, call: Call, seconds: float | None) -> Any:
    from urllib3 import Timeout

    headers = credentials.request_headers(call.content_type)
    client.update_params_for_auth(headers, [], ["BearerToken"])
    query = f"?{urlencode(call.query)}" if call.query else ""
    return client.rest_client.pool_manager.request(
        call.method,
        client.configuration.host.rstrip("/") + call.path + query,
        body=None if call.body is None else json.dumps(call.body),
        headers=headers,
        preload_content=False,
        redirect=False,
        retries=False,
        timeout=Timeout(connect=credentials.CONNECT_SECONDS, read=seconds),
    )
