"""What runs on the embedded cluster, as web pages; Airflow's links lead there.

The pages are read-only: only GET is answered, there are no scripts, and the one form is a filter.
They have an unguessable path of their own, since links are shared, and whoever knows the path of
the API may run commands. Everything that is shown comes from others, so all text is escaped where
markup is created, in `_tag`.

    /                                         all jobs, and pods without one, newest first;
                                              ?state=, ?name=: only those
    /jobs/NAMESPACE/JOB[/ROLE]                a job (of any kind), with the pods of one role
    /logs/NAMESPACE/POD[/CONTAINER]           a log that follows; ?previous: of the run before;
                                              ?text: all of it, as plain text
"""

from __future__ import annotations

import base64
import codecs
import hashlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from html import escape
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote, urlencode

from aiohttp import web

from kftrain_local.agent.logs import ContainerLog, LogOptions, NoLog, read_log
from kftrain_local.kinds import KINDS, JobKind
from kftrain_local.server.api_reading import Reader
from kftrain_local.server.resources import EVENTS, JOBS, PODS, Resource, table
from kftrain_local.server.selectors import Matches, everything, selector
from kftrain_local.server.store import Key, Object, Store

T = TypeVar("T")

LINKS: Mapping[str, str] = {
    "training_job": "jobs/{namespace}/{job}",
    "leader_logs": "logs/{namespace}/{pod}/{container}",
    "worker_logs": "logs/{namespace}/{pod}/{container}",
    "dashboard": "",
}
"""The paths to which Airflow's links lead, by the fields of `Links`: templates that follow the
URL."""

_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;margin:2em;color:#222;background:#fff}"
    "table{border-collapse:collapse;margin:.5em 0 1.5em}"
    "th,td{text-align:left;vertical-align:top;padding:.2em 1em .2em 0;border-bottom:1px solid #ddd}"
    "pre{background:#f4f4f4;padding:1em;white-space:pre-wrap;overflow-wrap:anywhere}"
    "h1{font-size:1.4em}h2{font-size:1.1em}"
    # A reversed column opens at its end, and stays there while lines are added.
    ".log{display:flex;flex-direction:column-reverse;overflow:auto;max-height:75vh}"
    ".log pre{margin:0}"
    ".Succeeded,.Complete{color:#0a6b2d}.Failed{color:#b00020}.Running{color:#0b57d0}"
)
_STYLE_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_HEADERS = {
    "Content-Security-Policy": (
        f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; "
        "form-action 'self'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",  # the path is a secret
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
_REFRESH, _REFRESH_IDLE = 2, 10
_MOST_LINES = 10_000
_ENDS = ("Failed", "Succeeded", "Complete")
"""The conditions that end a job. If both are true, the job has failed."""
_ROLES = (
    "training.kubeflow.org/replica-type",
    "training.kubeflow.org/job-role",
    "jobset.sigs.k8s.io/replicatedjob-name",
)
"""The labels with a pod's role, by operator."""
_MAIN_CONTAINERS = frozenset(kind.container for kind in KINDS)


class Html(str):
    """Text that is markup; all other text is escaped."""


class _Job(NamedTuple):
    kind: JobKind
    object: Object

    @property
    def name(self) -> str:
        return str(self.object["metadata"]["name"])

    @property
    def namespace(self) -> str:
        return str(self.object["metadata"]["namespace"])

    @property
    def status(self) -> Mapping[str, Any]:
        return _mapping(self.object.get("status"))

    @property
    def conditions(self) -> list[Mapping[str, Any]]:
        return _mappings(self.status.get("conditions"))

    @property
    def condition(self) -> Mapping[str, Any]:
        """The condition that describes the job: the one that ended it, or else the last that is
        true."""
        true = {str(each.get("type")): each for each in self.conditions if _is_true(each)}
        ends = [true[end] for end in _ENDS if end in true]
        return next(iter([*ends, *reversed(true.values())]), {"type": "Pending"})

    @property
    def is_done(self) -> bool:
        return self.condition["type"] in _ENDS

    @property
    def selects(self) -> Matches:
        """Selects its pods."""
        return selector(PODS, self.kind.pods.format(name=self.name), "")


class _Gone(Exception):
    """The requested object does not exist. The message is for people."""


class Page:
    def __init__(self, store: Store, reader: Reader, prefix: str) -> None:
        """`prefix`: the secret path of the pages."""
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

    async def _overview(self, request: web.Request) -> web.Response:
        jobs = _newest_first(self._jobs(), lambda job: job.object)
        state, name = request.query.get("state", ""), request.query.get("name", "")
        rows = [
            (
                job.kind.kind,
                job.namespace,
                self._job_link(job),
                _state(job),
                _replicas(job),
                job.object["metadata"]["creationTimestamp"],
            )
            for job in jobs
            if name in job.name and state in ("", job.condition["type"])
        ]
        heads = ("Kind", "Namespace", "Name", "State", "Replicas", "Created")
        none = "There are no such jobs." if jobs else "There are no jobs."
        body = _table(heads, rows) if rows else _tag("p", none)
        body = Html(self._filters(jobs, state, name) + body)
        alone = [] if state or name else self._listed(PODS, matches=_is_free)
        if alone:
            body = Html(body + _tag("h2", "Pods without a job") + self._pods(alone))
        refresh = _REFRESH_IDLE if all(job.is_done for job in jobs) else _REFRESH
        # A refresh would discard what somebody types.
        typing = "name" in request.query and not name
        return _answer(self._whole("Jobs", body, 0 if typing else refresh, typing=typing))

    def _filters(self, jobs: list[_Job], state: str, name: str) -> Html:
        """What is shown, and links to show other jobs."""

        def link(text: str, **query: str) -> Html:
            asked = urlencode({key: value for key, value in query.items() if value})
            return _tag("a", text, href=f"{self._prefix}/{'?' if asked else ''}{asked}")

        counts = Counter(str(job.condition["type"]) for job in jobs)
        links = [link(f"{each} {counts[each]}", state=each, name=name) for each in sorted(counts)]
        by_name = _tag("a", "by name", href=f"{self._prefix}/?name=")
        shown = " ".join(each for each in (state, name and f"*{name}*") if each) or "all"
        every = link("all")
        return _tag("p", f"Shown: {shown} | ", Html(" ".join((every, *links, by_name))))

    async def _job(self, _: web.Request, namespace: str, name: str, role: str = "") -> web.Response:
        found = [job for job in self._jobs(namespace) if job.name == name]
        if not found:
            raise _Gone(
                f"There is no job {name} in namespace {namespace}. It may have been deleted, or "
                "the cluster was restarted, which removes all objects."
            )
        parts = [part for job in found for part in self._about(job, role)]
        done = all(job.is_done for job in found)
        title = f"{namespace}/{name}{f' {role}' if role else ''}"
        return _answer(self._whole(title, Html("".join(parts)), 0 if done else _REFRESH))

    def _about(self, job: _Job, role: str) -> Iterator[Html]:
        yield _tag("h2", job.kind.kind, " is ", _state(job))
        said = (job.condition.get(field) for field in ("reason", "message"))
        yield _tag("p", ": ".join(str(each) for each in said if each))
        pods = self._listed(PODS, job.namespace, job.selects)
        if role:
            pods = [pod for pod in pods if role.lower() in _roles_of(pod)]
        yield _tag("h2", f"Pods: {_replicas(job) or len(pods)}")
        yield self._pods(pods)
        fields = ("type", "status", "reason", "message", "lastTransitionTime")
        rows = [[each.get(field, "") for field in fields] for each in job.conditions]
        yield _tag("h2", "Conditions")
        yield _table(("Type", "Status", "Reason", "Message", "Since"), rows)
        yield _tag("h2", "Events")
        heads, cells = _cells(table(EVENTS, "", self._events(job)))
        yield _table(heads[1:], [row[1:] for row in cells])  # their own names say nothing

    async def _log(
        self, request: web.Request, namespace: str, name: str, container: str = ""
    ) -> web.StreamResponse:
        pod = self._store.find(Key(PODS, namespace, name))
        if pod is None:
            raise _Gone(
                f"There is no pod {name} in namespace {namespace}. It may have been deleted."
            )
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
        head = f'{self._whole(title, beside)}<div class="log"><pre>'
        headers = {**_HEADERS, "Content-Type": "text/html; charset=utf-8"}
        return await _stream(request, headers, _log_page(head, log, follow=not previous))

    # ---- parts of pages

    def _whole(self, title: str, body: Html, refresh: int = 0, *, typing: bool = False) -> Html:
        """The page is left open at its end, which HTML allows, so that a log can continue."""
        again = Html(f'<meta http-equiv="refresh" content="{refresh}">' if refresh else "")
        head = _tag("head", again, _tag("title", title), _tag("style", Html(_STYLE)))
        way = _tag("p", _tag("a", "All jobs", href=f"{self._prefix}/"))
        field = Html('<form><input name="name" autofocus> Enter</form>' if typing else "")
        return Html(f"<!DOCTYPE html><html>{head}<body>{way}{_tag('h1', title)}{field}{body}")

    def _pods(self, pods: list[Object]) -> Html:
        pods = _newest_first(pods, lambda pod: pod)
        heads, rows = _cells(table(PODS, "", pods))
        logs = [
            Html(" ".join(self._log_link(pod, each["name"]) for each in pod["spec"]["containers"]))
            for pod in pods
        ]
        return _table((*heads, "Logs"), [(*row, log) for row, log in zip(rows, logs, strict=True)])

    def _beside(self, pod: Object, containers: list[str], shown: str) -> Html:
        """Links to the other logs of the pod, and of the pods that were created with it."""
        links = [self._log_link(pod, name) for name in containers]
        text = self._log_link(pod, shown, "?text", "the whole log as text")
        before = self._log_link(pod, shown, "?previous", "the run before the last restart")
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

    # ---- objects

    def _listed(
        self, resource: Resource, namespace: str = "", matches: Matches = everything
    ) -> list[Object]:
        return [each.object for each in self._store.listed(resource, namespace, matches)]

    def _jobs(self, namespace: str = "") -> Iterator[_Job]:
        """The jobs that were not created by another job."""
        for resource in JOBS:
            for found in self._listed(resource, namespace, _is_free):
                assert resource.job is not None
                yield _Job(resource.job, found)

    def _events(self, job: _Job) -> list[Object]:
        """The events of the job and of objects whose names begin with its name, the newest last."""

        def is_ours(event: Object) -> bool:
            about = str(_mapping(event.get("involvedObject")).get("name", ""))
            return about == job.name or about.startswith(f"{job.name}-")

        found = self._listed(EVENTS, job.namespace, is_ours)
        return sorted(found, key=lambda event: str(event.get("lastTimestamp") or ""))


async def _log_page(head: str, log: ContainerLog, *, follow: bool) -> AsyncIterator[bytes]:
    yield head.encode()
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    async for block in read_log(log, LogOptions(follow=follow, tail_lines=_MOST_LINES)):
        yield escape(decoder.decode(block)).encode()
    yield b"</pre></div><p>The log ends here.</p>"


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
    """The header and the rows of a table as kubectl receives it."""
    heads = [column["name"] for column in shown["columnDefinitions"]]
    return heads, [row["cells"] for row in shown["rows"]]


def _newest_first(found: Iterable[T], object_of: Callable[[T], Object]) -> list[T]:
    return sorted(
        found, key=lambda each: str(object_of(each)["metadata"]["creationTimestamp"]), reverse=True
    )


def _state(job: _Job) -> Html:
    return _tag("b", job.condition["type"], **{"class": str(job.condition["type"])})


def _replicas(job: _Job) -> str:
    """The counts in the status, by role."""
    counted = {
        **_mapping(job.status.get("replicaStatuses")),
        **{str(each.get("name")): each for each in _mappings(job.status.get("jobsStatus"))},
    }
    fields = ("active", "succeeded", "failed")
    counts = (
        (role, ", ".join(f"{_mapping(each)[f]} {f}" for f in fields if _mapping(each).get(f)))
        for role, each in counted.items()
    )
    return "; ".join(f"{role} {words}" for role, words in counts if words)


def _roles_of(pod: Object) -> Iterator[str]:
    """The role in the labels of a pod."""
    labels = _mapping(pod["metadata"].get("labels"))
    return (str(labels[each]).lower() for each in _ROLES if each in labels)


def _is_true(condition: Mapping[str, Any]) -> bool:
    return condition.get("status") == "True"


# The status that a client has written may contain anything.


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _mappings(value: object) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _is_free(found: Object) -> bool:
    return not found["metadata"].get("ownerReferences")
