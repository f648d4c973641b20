"""What runs on the embedded cluster, as web pages for people; the targets of Airflow's links.

It can be looked at and no more: only GET is answered, and the pages hold no script and no form. It
has an unguessable path of its own, since links are passed on, and the API's path is the right to
run commands. Whatever is shown was written by somebody else, so all text is escaped where markup
is made, in `_tag`.

    /                                         all jobs, and pods without one
    /jobs/NAMESPACE/JOB[/ROLE]                a job (of whatever kind), with the pods of one role
    /logs/NAMESPACE/POD[/CONTAINER]           a log that follows; ?previous: of the run before;
                                              ?text: all of it, as plain text
"""

from __future__ import annotations

import base64
import codecs
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from html import escape
from typing import NamedTuple
from urllib.parse import quote

from aiohttp import web

from airflow_kftrain.job_state import JobState, Phase, read_mapping, read_mappings, read_state
from airflow_kftrain.kinds import KINDS, JobKind
from airflow_kftrain.local.agent.logs import ContainerLog, LogOptions, NoLog, read_log
from airflow_kftrain.local.server.api_reading import Reader
from airflow_kftrain.local.server.resources import EVENTS, JOBS, PODS, Resource, table
from airflow_kftrain.local.server.selectors import Matches, everything, selector
from airflow_kftrain.local.server.store import Key, Object, Store
from airflow_kftrain.monitoring.pods import read_pod
from airflow_kftrain.monitoring.report import write_report

LINKS: Mapping[str, str] = {
    "training_job": "jobs/{namespace}/{job}",
    "leader_logs": "logs/{namespace}/{pod}/{container}",
    "worker_logs": "logs/{namespace}/{pod}/{container}",
    "dashboard": "",
}
"""Where Airflow's links lead, by the fields of `Links`: templates, to be put behind the URL."""

_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;margin:2em;color:#222;background:#fff}"
    "table{border-collapse:collapse;margin:.5em 0 1.5em}"
    "th,td{text-align:left;vertical-align:top;padding:.2em 1em .2em 0;border-bottom:1px solid #ddd}"
    "pre{background:#f4f4f4;padding:1em;white-space:pre-wrap;overflow-wrap:anywhere}"
    "h1{font-size:1.4em}h2{font-size:1.1em}"
    ".Succeeded{color:#0a6b2d}.Failed{color:#b00020}.Running{color:#0b57d0}"
)
_STYLE_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_HEADERS = {
    "Content-Security-Policy": (
        f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",  # the path is a secret
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
_REFRESH, _REFRESH_IDLE = 2, 10
_MOST_LINES = 10_000
_MAIN_CONTAINERS = frozenset(kind.container for kind in KINDS)


class Html(str):
    """Text that is markup; every other text is escaped."""


class _Job(NamedTuple):
    kind: JobKind
    object: Object
    state: JobState

    @property
    def name(self) -> str:
        return str(self.object["metadata"]["name"])

    @property
    def namespace(self) -> str:
        return str(self.object["metadata"]["namespace"])

    @property
    def selects(self) -> Matches:
        """Its pods."""
        return selector(PODS, self.kind.selectors.pods.format(name=self.name), "")


class _Gone(Exception):
    """What a page was asked for is not there; its words are for people."""


class Page:
    def __init__(self, store: Store, reader: Reader, prefix: str) -> None:
        """`prefix`: the secret path below which all of it is."""
        self._store = store
        self._reader = reader
        self._prefix = prefix

    async def answer(self, request: web.Request, path: str) -> web.StreamResponse:
        if request.method != "GET":
            return web.Response(status=405, headers={**_HEADERS, "Allow": "GET"})
        pages: Mapping[str, Callable[..., Awaitable[web.StreamResponse]]] = {
            "": self._overview,
            "jobs": self._job,
            "logs": self._log,
        }
        first, *rest = path.strip("/").split("/")
        try:
            if first not in pages or len(rest) not in ((2, 3) if first else (0,)):
                raise _Gone("There is no such page.")
            return await pages[first](request, *rest)
        except _Gone as gone:
            body = _tag("p", str(gone))
            return _answer(self._whole("Not found", body), status=404)

    # ---- the pages

    async def _overview(self, _: web.Request) -> web.Response:
        jobs = [*self._jobs()]
        rows = [
            (
                job.kind.kind,
                job.namespace,
                self._job_link(job),
                _phase(job.state.phase),
                _replicas(job.state),
                job.object["metadata"]["creationTimestamp"],
            )
            for job in jobs
        ]
        heads = ("Kind", "Namespace", "Name", "Phase", "Replicas", "Created")
        body = _table(heads, rows) if rows else _tag("p", "There are no jobs.")
        if alone := self._listed(PODS, matches=_is_free):
            body = Html(body + _tag("h2", "Pods without a job") + self._pods(alone))
        done = all(job.state.phase.is_final for job in jobs)
        return _answer(self._whole("Jobs", body, _REFRESH_IDLE if done else _REFRESH))

    async def _job(self, _: web.Request, namespace: str, name: str, role: str = "") -> web.Response:
        found = [job for job in self._jobs(namespace) if job.name == name]
        if not found:
            raise _Gone(
                f"There is no job {name} in namespace {namespace}, or no longer: it was deleted, "
                "or the cluster has been started anew, which keeps nothing."
            )
        parts = [part for job in found for part in self._about(job, role)]
        done = all(job.state.phase.is_final for job in found)
        title = f"{namespace}/{name}{f' {role}' if role else ''}"
        return _answer(self._whole(title, Html("".join(parts)), 0 if done else _REFRESH))

    def _about(self, job: _Job, role: str) -> Iterator[Html]:
        state, found = job.state, self._listed(PODS, job.namespace, job.selects)
        read = [read_pod(job.kind, pod) for pod in found]
        yield _tag("h2", job.kind.kind, " is ", _phase(state.phase))
        yield _tag("p", ": ".join(each for each in (state.reason, state.message) if each))
        events = self._events(job)
        if state.phase is Phase.FAILED:
            yield _tag("pre", write_report(job.kind, state, read, events=events))
        pods = [
            pod
            for pod, its in zip(found, read, strict=True)
            if role.lower() in ("", its.role.lower())
        ]
        yield _tag("h2", f"Pods: {_replicas(state) or len(pods)}")
        yield self._pods(pods)
        conditions = read_mappings(read_mapping(job.object.get("status")).get("conditions"))
        fields = ("type", "status", "reason", "message", "lastTransitionTime")
        rows = [[each.get(field, "") for field in fields] for each in conditions]
        yield _tag("h2", "Conditions")
        yield _table(("Type", "Status", "Reason", "Message", "Since"), rows)
        yield _tag("h2", "Events")
        heads, cells = _cells(table(EVENTS, "", events))
        yield _table(heads[1:], [row[1:] for row in cells])  # their own names say nothing

    async def _log(
        self, request: web.Request, namespace: str, name: str, container: str = ""
    ) -> web.StreamResponse:
        pod = self._store.find(Key(PODS, namespace, name))
        if pod is None:
            raise _Gone(f"There is no pod {name} in namespace {namespace}, or no longer.")
        names = [each["name"] for each in pod["spec"]["containers"]]
        container = container or next(
            (each for each in names if each in _MAIN_CONTAINERS), names[0]
        )
        names += [each["name"] for each in pod["spec"].get("initContainers") or ()]
        if container not in names:
            raise _Gone(f"Pod {name} has no container {container}; it has {', '.join(names)}.")
        title, beside = f"{namespace}/{name} {container}", self._beside(pod, names, container)
        previous = "previous" in request.query
        try:
            log = self._reader.find_log(namespace, name, container, previous)
        except NoLog as missing:
            body = Html(beside + _tag("p", f"There is no log: {missing}"))
            return _answer(self._whole(title, body, 0 if previous else _REFRESH))
        if "text" in request.query:
            headers = {**_HEADERS, "Content-Type": "text/plain; charset=utf-8"}
            return await _stream(request, headers, read_log(log, LogOptions(follow=not previous)))
        head = f"{self._whole(title, beside)}<pre>"
        headers = {**_HEADERS, "Content-Type": "text/html; charset=utf-8"}
        return await _stream(request, headers, _log_page(head, log, follow=not previous))

    # ---- parts of pages

    def _whole(self, title: str, body: Html, refresh: int = 0) -> Html:
        """Left open at its end, which HTML allows, so that a log can go on."""
        again = Html(f'<meta http-equiv="refresh" content="{refresh}">' if refresh else "")
        head = _tag("head", again, _tag("title", title), _tag("style", Html(_STYLE)))
        way = _tag("p", _tag("a", "All jobs", href=f"{self._prefix}/"))
        return Html(f"<!DOCTYPE html><html>{head}<body>{way}{_tag('h1', title)}{body}")

    def _pods(self, pods: list[Object]) -> Html:
        heads, rows = _cells(table(PODS, "", pods))
        logs = [
            Html(" ".join(self._log_link(pod, each["name"]) for each in pod["spec"]["containers"]))
            for pod in pods
        ]
        return _table((*heads, "Logs"), [(*row, log) for row, log in zip(rows, logs, strict=True)])

    def _beside(self, pod: Object, containers: list[str], shown: str) -> Html:
        """The other logs of the pod, and of the pods that were made with it."""
        links = [self._log_link(pod, name) for name in containers]
        text = self._log_link(pod, shown, "?text", "all of it as text")
        before = self._log_link(pod, shown, "?previous", "run before a restart")
        lines = [_tag("p", "Containers: ", Html(" ".join(links)), " | ", text, " | ", before)]
        for job in self._jobs(pod["metadata"]["namespace"]):
            if job.selects(pod):
                pods = self._listed(PODS, job.namespace, job.selects)
                logs = Html(" ".join(self._log_link(each) for each in pods))
                lines.append(_tag("p", "Job: ", self._job_link(job), " | Pods: ", logs))
        return Html("".join(lines))

    def _job_link(self, job: _Job) -> Html:
        return self._link("jobs", job.object, job.name)

    def _log_link(self, pod: Object, container: str = "", query: str = "", text: str = "") -> Html:
        text = text or container or pod["metadata"]["name"]
        return self._link("logs", pod, text, f"/{quote(container)}{query}" if container else "")

    def _link(self, page: str, found: Object, text: str, more: str = "") -> Html:
        place = (found["metadata"]["namespace"], found["metadata"]["name"])
        where = "/".join(quote(each, safe="") for each in place)
        return _tag("a", text, href=f"{self._prefix}/{page}/{where}{more}")

    # ---- what there is

    def _listed(
        self, resource: Resource, namespace: str = "", matches: Matches = everything
    ) -> list[Object]:
        return [each.object for each in self._store.listed(resource, namespace, matches)]

    def _jobs(self, namespace: str = "") -> Iterator[_Job]:
        """Those that somebody made, not another job."""
        for resource in JOBS:
            for found in self._listed(resource, namespace, _is_free):
                assert resource.job is not None
                yield _Job(resource.job, found, read_state(resource.job, found))

    def _events(self, job: _Job) -> list[Object]:
        """About the job and what is called after it, the newest last."""

        def is_ours(event: Object) -> bool:
            about = str(read_mapping(event.get("involvedObject")).get("name", ""))
            return about == job.name or about.startswith(f"{job.name}-")

        found = self._listed(EVENTS, job.namespace, is_ours)
        return sorted(found, key=lambda event: str(event.get("lastTimestamp") or ""))


async def _log_page(head: str, log: ContainerLog, *, follow: bool) -> AsyncIterator[bytes]:
    yield head.encode()
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    async for block in read_log(log, LogOptions(follow=follow, tail_lines=_MOST_LINES)):
        yield escape(decoder.decode(block)).encode()
    yield b"</pre><p>The log ends here.</p>"


async def _stream(
    request: web.Request, headers: Mapping[str, str], blocks: AsyncIterator[bytes]
) -> web.StreamResponse:
    response = web.StreamResponse(headers=headers)
    await response.prepare(request)
    async for block in blocks:
        await response.write(block)
    return response


def _answer(page: Html, status: int = 200) -> web.Response:
    return web.Response(text=page, status=status, content_type="text/html", headers=_HEADERS)


def _tag(name: str, *content: object, **attributes: str) -> Html:
    words = "".join(f' {key}="{escape(value)}"' for key, value in attributes.items())
    inside = [each if isinstance(each, Html) else escape(str(each)) for each in content]
    return Html(f"<{name}{words}>{''.join(inside)}</{name}>")


def _table(heads: Iterable[object], rows: Iterable[Iterable[object]]) -> Html:
    lines = [_tag("tr", *(_tag("th", head) for head in heads))]
    lines += [_tag("tr", *(_tag("td", cell) for cell in row)) for row in rows]
    return _tag("table", Html("".join(lines)))


def _cells(shown: Object) -> tuple[list[str], list[list[object]]]:
    """Heads and rows of a table as kubectl gets it."""
    heads = [column["name"] for column in shown["columnDefinitions"]]
    return heads, [row["cells"] for row in shown["rows"]]


def _phase(phase: Phase) -> Html:
    return Html(f'<b class="{phase.value}">{phase.value}</b>')


def _replicas(state: JobState) -> str:
    fields = ("active", "succeeded", "failed")
    counts = (
        (each.role, ", ".join(f"{getattr(each, f)} {f}" for f in fields if getattr(each, f)))
        for each in state.replicas
    )
    return "; ".join(f"{role} {words}" for role, words in counts if words)


def _is_free(found: Object) -> bool:
    return not found["metadata"].get("ownerReferences")
