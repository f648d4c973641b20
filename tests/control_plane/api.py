"""A small client of the API server that needs only the standard library: no kubectl, no client
library.

It returns all responses, whatever their code: the tests are about responses.
"""

from __future__ import annotations

import contextlib
import copy
import http.client
import json
import ssl
import urllib.parse
from collections.abc import Iterator, Mapping
from socket import SHUT_RDWR
from typing import Any, NamedTuple

from tests.control_plane.errors import RefusedByApi

Manifest = dict[str, Any]

JSON = "application/json"
APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC_MERGE = "application/strategic-merge-patch+json"


class Answer(NamedTuple):
    code: int
    text: str
    warnings: tuple[str, ...] = ()
    """The headers of that name, in their order."""

    @property
    def ok(self) -> bool:
        return 200 <= self.code < 300

    @property
    def object(self) -> Manifest:
        """The body; empty if it is not JSON (a kind that is not served is answered in plain
        text)."""
        try:
            body = json.loads(self.text)
        except ValueError:
            return {}
        return body if isinstance(body, dict) else {}

    @property
    def reason(self) -> str | None:
        """The reason of an error (a Status object)."""
        return self.object.get("reason")

    @property
    def message(self) -> str:
        return str(self.object.get("message", self.text))

    def required(self, what: str) -> Manifest:
        """The body of a response without which the launcher cannot continue."""
        if not self.ok:
            raise RefusedByApi(f"the API server refused {what} ({self.code}): {self.message}")
        return self.object


class Watch:
    """The events of an open watch, one by one as they arrive: `for event in watch`."""

    def __init__(
        self, connection: http.client.HTTPConnection, response: http.client.HTTPResponse
    ) -> None:
        self._connection = connection
        self._response = response
        self._socket = connection.sock
        self._ended = False
        self.code = response.status

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self._response.close()
        self._connection.close()

    def __iter__(self) -> Iterator[Manifest]:
        """Until the server ends it, or `end` does."""
        try:
            while line := self._response.readline():
                yield json.loads(line)
        except (OSError, ValueError, http.client.HTTPException):
            if not self._ended:
                raise

    def end(self) -> None:
        """Called in another thread than the one that reads the events."""
        self._ended = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(SHUT_RDWR)


class Api:
    """One user of one API server. Every call has its own connection, so threads may share it."""

    def __init__(self, server: str, ca_file: str | None, token: str | None) -> None:
        """`server` as in a kubeconfig: http or https, optionally with a path prefix."""
        self.arguments = (server, ca_file, token)
        """The arguments that create a copy of it."""
        parts = urllib.parse.urlsplit(server)
        self._place = (parts.hostname or "", parts.port or 443)
        self._prefix = parts.path.rstrip("/")
        self._token = token
        self._tls = ssl.create_default_context(cafile=ca_file) if ca_file else None
        self._plurals: dict[tuple[str, str], tuple[str, bool]] = {}

    def with_token(self, token: str | None) -> Api:
        """As another user; without a token, as nobody."""
        other = copy.copy(self)
        other._token = token
        other.arguments = (*self.arguments[:2], token)
        return other

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Mapping[str, object] | None = None,
        content_type: str = JSON,
        accept: str = JSON,
    ) -> Answer:
        """A `body` of bytes is sent as it is, any other as JSON."""
        connection = self._connect()
        try:
            response = self._send(connection, method, path, body, query, content_type, accept)
            text = response.read().decode("utf-8", errors="replace")
            warnings = response.headers.get_all("Warning") or []
            return Answer(response.status, text, tuple(warnings))
        finally:
            connection.close()

    def watch(self, path: str, **query: object) -> Watch:
        """Opens a watch. It sees everything that is created from now on."""
        connection = self._connect()
        wanted = {"watch": "true", **query}
        response = self._send(connection, "GET", path, None, wanted)
        connection.sock.settimeout(None)  # while nothing happens
        return Watch(connection, response)

    def _connect(self) -> http.client.HTTPConnection:
        if self._tls is None:
            return http.client.HTTPConnection(*self._place, timeout=60)
        return http.client.HTTPSConnection(*self._place, context=self._tls, timeout=60)

    def _send(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        body: Any,
        query: Mapping[str, object] | None,
        content_type: str = JSON,
        accept: str = JSON,
    ) -> http.client.HTTPResponse:
        headers = {"Accept": accept, "Content-Type": content_type}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        parameters = f"?{urllib.parse.urlencode(query)}" if query else ""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        connection.request(method, self._prefix + path + parameters, body=data, headers=headers)
        return connection.getresponse()

    def path(
        self, api_version: str, kind: str, namespace: str | None = None, name: str | None = None
    ) -> str:
        """The path of objects of this kind, by what the server says that it serves."""
        plural, namespaced = self._plural(api_version, kind)
        parts = [_root(api_version)]
        if namespaced and namespace is not None:
            parts.append(f"namespaces/{namespace}")
        parts.append(plural)
        if name is not None:
            parts.append(name)
        return "/".join(parts)

    def create(self, manifest: Manifest, **query: object) -> Answer:
        metadata = manifest["metadata"]
        path = self.path(manifest["apiVersion"], manifest["kind"], metadata.get("namespace"))
        return self.call("POST", path, manifest, query=query)

    def apply(self, manifest: Manifest, **query: object) -> Answer:
        """Server-side apply. JSON is YAML, so the body may be JSON."""
        options = {"fieldManager": "control-plane", "force": "true", **query}
        return self.call(
            "PATCH", self._path_of(manifest), manifest, query=options, content_type=APPLY
        )

    def get(self, manifest: Manifest) -> Answer:
        return self.call("GET", self._path_of(manifest))

    def delete(
        self, manifest: Manifest, options: Manifest | None = None, **query: object
    ) -> Answer:
        """`options` is the DeleteOptions body; if there is one, the server ignores the query."""
        return self.call("DELETE", self._path_of(manifest), options, query=query)

    def serves(self, api_version: str, kind: str) -> bool:
        resources = self.call("GET", _root(api_version)).object.get("resources", [])
        return any(resource["kind"] == kind for resource in resources)

    def _path_of(self, manifest: Manifest) -> str:
        metadata = manifest["metadata"]
        return self.path(
            manifest["apiVersion"], manifest["kind"], metadata.get("namespace"), metadata["name"]
        )

    def _plural(self, api_version: str, kind: str) -> tuple[str, bool]:
        if (api_version, kind) not in self._plurals:
            listed = self.call("GET", _root(api_version)).required(f"a list of {api_version}")
            for resource in listed["resources"]:
                if "/" not in resource["name"]:  # a subresource, such as pods/log
                    key = (api_version, resource["kind"])
                    self._plurals[key] = (resource["name"], resource["namespaced"])
        if (api_version, kind) not in self._plurals:
            raise RefusedByApi(f"the API server does not serve {kind} of {api_version}")
        return self._plurals[api_version, kind]


def _root(api_version: str) -> str:
    return f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
