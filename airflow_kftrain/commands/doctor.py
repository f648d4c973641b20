"""`airflow-kftrain doctor`: checks a connection and its cluster. It prints one line per finding,
with what to do about each problem, and changes nothing."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import redirect_stdout
from typing import Any, NamedTuple

from airflow_kftrain.errors import BadConnection, Forbidden, KfTrainError, NotFound, NotServed
from airflow_kftrain.hooks import api_calls, permissions
from airflow_kftrain.hooks.permissions import Permission
from airflow_kftrain.hooks.training_job import TrainingJobHook
from airflow_kftrain.job_state import read_mapping, read_mappings, read_text
from airflow_kftrain.kinds import BATCH_JOB, KINDS, KUEUE_GROUP, JobKind
from airflow_kftrain.monitoring.text import one_line

_GOOD = "ok"
_NOTE = "note"
_BAD = "FAIL"


class Finding(NamedTuple):
    mark: str
    text: str


def main(words: list[str]) -> int:
    given = _arguments(words)
    bad = False
    examination = _Examination(TrainingJobHook(given.conn_id), given.namespace)
    for finding in examination.findings():
        bad = bad or finding.mark == _BAD
        sys.stdout.write(f"{finding.mark:<4}  {finding.text}\n")
        sys.stdout.flush()
    return 1 if bad else 0


def _arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="airflow-kftrain doctor",
        description="Check whether an Airflow connection and its cluster can run training jobs.",
        epilog="Exit code 0: training jobs can run; 1: something has to be fixed.",
    )
    parser.add_argument(
        "--conn-id", default="kubernetes_default", help="the Airflow connection (%(default)s)"
    )
    parser.add_argument(
        "--namespace", default="", help="the namespace of the jobs (default: the connection's)"
    )
    return parser.parse_args(words)


class _Examination:
    def __init__(self, hook: TrainingJobHook, namespace: str) -> None:
        self._hook = hook
        self._namespace = namespace
        self._served: list[JobKind] = []

    def findings(self) -> Iterator[Finding]:
        """Ends with a finding after which it is useless to continue."""
        try:
            with redirect_stdout(sys.stderr):  # Airflow prints its own messages there
                source, server = self._hook.source(), self._hook.server()
                self._namespace = self._namespace or self._hook.namespace()
        except BadConnection as error:
            yield Finding(_BAD, str(error))
            return
        yield Finding(_GOOD, f"connection {self._hook.connection}: {source}")
        try:
            version = self._hook.ask(api_calls.get_version())
            yield Finding(_GOOD, f"{server} is Kubernetes {read_text(version.get('gitVersion'))}")
            yield self._of_namespace()
            yield from self._of_kinds()
            yield from self._of_rights()
            yield from self._of_webhooks()
            yield from self._of_kueue()
        except KfTrainError as error:  # for example an invalid name of a namespace
            yield Finding(_BAD, str(error))

    def _of_namespace(self) -> Finding:
        try:
            self._hook.ask(api_calls.get_namespace(self._namespace))
        except NotFound:
            advice = "Create it, or set another one in the connection or with --namespace"
            return Finding(_BAD, f"namespace {self._namespace} does not exist. {advice}.")
        except Forbidden:
            return Finding(
                _NOTE, f"namespace {self._namespace}: not allowed to check whether it exists"
            )
        return Finding(_GOOD, f"namespace {self._namespace}")

    def _of_kinds(self) -> Iterator[Finding]:
        for kind in KINDS:
            if self._is_served(kind):
                self._served.append(kind)
                yield Finding(_GOOD, f"{kind.kind} ({kind.api_version}) is served")
            else:
                text = f"{kind.kind} ({kind.api_version}) is not served"
                yield Finding(_NOTE, f"{text}. Install {kind.operator} if you need it.")
        if all(kind is BATCH_JOB for kind in self._served):
            operators = dict.fromkeys(kind.operator for kind in KINDS if kind is not BATCH_JOB)
            text = "no kind of training job is served. Install one of: " + ", ".join(operators)
            yield Finding(_BAD, f"{text}.")

    def _is_served(self, kind: JobKind) -> bool:
        try:
            answer = self._hook.ask(api_calls.served_kinds(kind.group, kind.version))
        except (NotFound, NotServed):
            return False
        return any(
            each.get("name") == kind.plural for each in read_mappings(answer.get("resources"))
        )

    def _of_rights(self) -> Iterator[Finding]:
        # Two versions of a kind have the same permissions.
        by_resource = {(kind.group, kind.plural): kind for kind in self._served}
        for kind in by_resource.values():
            yield from self._of_resource(permissions.of_kind(kind))
        for resource in dict.fromkeys(each.resource for each in permissions.of_all_kinds()):
            of_it = [each for each in permissions.of_all_kinds() if each.resource == resource]
            yield from self._of_resource(of_it)

    def _of_resource(self, wanted: Iterable[Permission]) -> Iterator[Finding]:
        granted = []
        for each in wanted:
            review = api_calls.review_access(each.attributes(self._namespace))
            if read_mapping(self._hook.ask(review).get("status")).get("allowed") is True:
                granted.append(each)
                continue
            mark = _BAD if each.needed else _NOTE
            what = f"{each.verb} {_full_name(each)} in namespace {self._namespace}"
            text = f"not allowed: {what} ({each.why}). Add this verb to the Role."
            yield Finding(mark, text)
        if granted:
            verbs = ", ".join(each.verb for each in granted)
            yield Finding(_GOOD, f"allowed: {verbs} {_full_name(granted[0])}")

    def _of_webhooks(self) -> Iterator[Finding]:
        groups = {kind.group for kind in self._served} - {BATCH_JOB.group}
        for plural in ("validatingwebhookconfigurations", "mutatingwebhookconfigurations"):
            try:
                found = self._hook.ask(api_calls.list_webhooks(plural))
            except Forbidden:
                yield Finding(_NOTE, f"{plural}: not allowed to read them, and not required")
                continue
            except (NotFound, NotServed):
                continue
            for configuration in read_mappings(found.get("items")):
                for webhook in read_mappings(configuration.get("webhooks")):
                    if _groups_of(webhook) & groups:
                        yield self._of_webhook(webhook)

    def _of_webhook(self, webhook: Mapping[str, Any]) -> Finding:
        name = one_line(read_text(webhook.get("name")))
        client = read_mapping(webhook.get("clientConfig"))
        service = read_mapping(client.get("service"))
        if not read_text(client.get("caBundle")):
            text = f"webhook {name} has no certificate authority, so every submit is rejected"
            return Finding(_BAD, f"{text}. Restart its operator, which should set it.")
        if service and not self._has_service(service):
            where = f"{read_text(service.get('namespace'))}/{read_text(service.get('name'))}"
            text = f"webhook {name} uses the service {where}, which does not exist"
            return Finding(_BAD, f"{text}. Reinstall its operator, or delete the webhook.")
        return Finding(_GOOD, f"webhook {name}")

    def _has_service(self, service: Mapping[str, Any]) -> bool:
        place = read_text(service.get("namespace")), read_text(service.get("name"))
        try:
            self._hook.ask(api_calls.get_service(*place))
        except NotFound:
            return False
        except Forbidden:
            return True  # it may exist
        return True

    def _of_kueue(self) -> Iterator[Finding]:
        try:
            self._hook.ask(api_calls.served_versions(KUEUE_GROUP))
        except (NotFound, NotServed, Forbidden):
            yield Finding(_NOTE, "Kueue is not installed: do not use queue_name")
            return
        yield Finding(_GOOD, "Kueue is installed: you can use queue_name")
        yield from self._of_resource(permissions.of_queues())


def _full_name(permission: Permission) -> str:
    group = f" of {permission.group}" if permission.group else ""
    return f"{permission.resource}{group}"


def _groups_of(webhook: Mapping[str, Any]) -> set[str]:
    return {
        group
        for rule in read_mappings(webhook.get("rules"))
        for group in rule.get("apiGroups") or []
        if isinstance(group, str)
    }
