"""A small client of the API server on the standard library: no kubectl, no client library.

Answers come back whole, whatever their code: it is answers that the tests are about.
"""

from __future__ import annotations

import http.client
import json
import ssl
import urllib.parse
from collections.abc import Mapping
from typing import Any, NamedTuple

from tests.control_plane.errors import RefusedByApi

Manifest = dict[str, Any]

APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"


class Answer(NamedTuple):
    code: int
    text: str

    @property
    def ok(self) -> bool:
        return 200 <= self.code < 300

    @property
    def object(self) -> Manifest:
        """The body; empty if it is not JSON (what is not served is answered in plain text)."""
        try:
            body = json.loads(self.text)
        except ValueError:
            return {}
        return body if isinstance(body, dict) else {}

    @property
    def reason(self) -> str | None:
        """Of a refusal (a Status object)."""
        return self.object.get("reason")

    @property
    def message(self) -> str:
        return str(self.object.get("message", self.text))

    def required(self, what: str) -> Manifest:
        """The body of an answer without which the launcher cannot go on."""
        if not self.ok:
            raise RefusedByApi(f"the API server refused {what} ({self.code}): {self.message}")
        return self.object


class Api:
    """One user of one API server. Every call has its own connection, so threads may share it."""

    def __init__(self, port: int, ca_file: str, token: str | None) -> None:
        self.port = port
        self._token = token
        self._tls = ssl.create_default_context(cafile=ca_file)
        self._plurals: dict[tuple[str, str], tuple[str, bool]] = {}

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Mapping[str, object] | None = None,
        content_type: str = "application/json",
    ) -> Answer:
        headers = {"Accept": "application/json", "Content-Type": content_type}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        parameters = f"?{urllib.parse.urlencode(query)}" if query else ""
        data = None if body is None else json.dumps(body).encode()
        connection = http.client.HTTPSConnection(
            "127.0.0.1", self.port, context=self._tls, timeout=60
        )
        try:
            connection.request(method, path + parameters, body=data, headers=headers)
            response = connection.getresponse()
            return Answer(response.status, response.read().decode("utf-8", errors="replace"))
        finally:
            connection.close()

    def path(
        self, api_version: str, kind: str, namespace: str | None = None, name: str | None = None
    ) -> str:
        """Where objects of this kind are, by what the server says that it serves."""
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
        """Server-side apply; JSON is YAML, so the body may be JSON."""
        options = {"fieldManager": "control-plane", "force": "true", **query}
        return self.call(
            "PATCH", self._path_of(manifest), manifest, query=options, content_type=APPLY
        )

    def get(self, manifest: Manifest) -> Answer:
        return self.call("GET", self._path_of(manifest))

    def delete(
        self, manifest: Manifest, options: Manifest | None = None, **query: object
    ) -> Answer:
        """`options` is the DeleteOptions body; with one, the server ignores the query."""
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
