"""The web page: what it shows, that it follows changes, and what nobody can do with it."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
from collections.abc import Iterator
from urllib.parse import quote, urlsplit

import pytest
import yaml

from airflow_kftrain.specs.lifecycle import PLACEHOLDERS
from kftrain_local.times import now_text
from tests.cluster.jobs import pytorch_job, replica
from tests.cluster.targets import LocalTarget
from tests.cluster.world import World, eventually

_EVIL = "<script>alert(1)</script>&\"'"
_ESCAPED = "&lt;script&gt;alert(1)&lt;/script&gt;&amp;"


class Answer:
    def __init__(self, got: http.client.HTTPResponse) -> None:
        self.code = got.status
        self.headers = got.headers
        self.text = got.read().decode()


class Browser:
    """Knows only the URL of the page."""

    def __init__(self, target: LocalTarget) -> None:
        (url,) = re.findall(r"page: +(\S+)", target.said())
        self.url = url
        self.place = urlsplit(url)
        assert self.place.hostname == "127.0.0.1"

    @contextlib.contextmanager
    def opens(
        self, path: str = "", method: str = "GET", host: str = ""
    ) -> Iterator[http.client.HTTPResponse]:
        """A response that is still to be read. A path with / starts at the root."""
        assert self.place.port is not None
        connection = http.client.HTTPConnection("127.0.0.1", self.place.port, timeout=20)
        whole = path if path.startswith("/") else self.place.path + path
        try:
            connection.request(method, whole, headers={"Host": host or self.place.netloc})
            with connection.getresponse() as response:
                yield response
        finally:
            connection.close()

    def gets(self, path: str = "", method: str = "GET", host: str = "") -> Answer:
        with self.opens(path, method, host) as response:
            return Answer(response)

    def follows(self, page: str) -> Iterator[Answer]:
        """All links of a page."""
        for link in re.findall(r'href="([^"]+)"', page):
            yield self.gets(link)


@pytest.fixture
def browser(target: LocalTarget) -> Browser:
    return Browser(target)


def test_a_job_with_its_pods_conditions_events_and_logs(world: World, browser: Browser) -> None:
    script = "echo epoch $((6 * 7))"
    roles = {"Master": replica("pytorch", script), "Worker": replica("pytorch", script, 2)}
    world.start(pytorch_job(roles)).until(lambda job: "Succeeded" in str(job.get("status")))
    place = f"{world.namespace}/job"
    assert f'/jobs/{place}">job</a></td><td><b class="Succeeded">' in browser.gets().text
    job = browser.gets(f"jobs/{place}")
    assert job.code == 200
    for shown in (
        "PyTorchJob is <b class",
        "Master 1 succeeded; Worker 2 succeeded",
        f'/logs/{world.namespace}/job-worker-1/pytorch">pytorch</a>',
        "<td>PyTorchJobSucceeded</td><td>PyTorchJob job is successfully completed.</td>",
        "<td>SuccessfulCreatePod</td><td>pytorchjob/job</td><td>Created pod: job-worker-1</td>",
    ):
        assert shown in job.text
    workers = browser.gets(f"jobs/{place}/worker").text
    assert "/job-worker-1/pytorch" in workers
    assert "/job-master-0/pytorch" not in workers
    for log in (f"logs/{world.namespace}/job-master-0{it}" for it in ("", "/pytorch")):
        assert "<pre>epoch 42\n</pre>" in browser.gets(log).text
    assert browser.gets(f"logs/{world.namespace}/job-master-0?text").text == "epoch 42\n"
    assert [each.code for each in browser.follows(job.text)] == [200] * 4
    assert {each.code for each in browser.follows(browser.gets(log).text)} == {200}


def test_a_job_that_failed(world: World, browser: Browser) -> None:
    roles = {"Master": replica("pytorch", "echo no such dataset >&2; exit 3")}
    world.start(pytorch_job(roles)).until(lambda job: "Failed" in str(job.get("status")))
    page = browser.gets(f"jobs/{world.namespace}/job").text
    assert '<b class="Failed">Failed</b>' in page
    assert "<p>PyTorchJobFailed: " in page
    assert "<td>Error</td>" in page, "the pod"


def test_the_newest_jobs_come_first_and_are_filtered_by_state_and_name(
    world: World, browser: Browser
) -> None:
    older = world.start(pytorch_job({"Master": replica("pytorch", "true")}, name="older"))
    made = older.until(lambda job: "Succeeded" in str(job.get("status")))["metadata"]
    # Times of creation are in seconds.
    eventually(lambda: now_text() > made["creationTimestamp"], lambda: None)
    newer = world.start(pytorch_job({"Master": replica("pytorch", "false")}, name="newer"))
    newer.until(lambda job: "Failed" in str(job.get("status")))
    wanted = {"older": "Succeeded", "newer": "Failed"}

    def shown(query: str = "") -> list[str]:
        page = browser.gets(query).text
        return [name for name in re.findall(r">(\w+)</a></td>", page) if name in wanted]

    assert shown() == ["newer", "older"]
    assert shown("?state=Failed") == ["newer"]
    assert shown("?state=Succeeded&name=old") == ["older"]
    assert shown("?name=no-such") == []
    assert "<form>" in browser.gets("?name=").text
    assert "http-equiv" not in browser.gets("?name=").text, "what is typed would be lost"
    assert {each.code for each in browser.follows(browser.gets("?state=Failed").text)} == {200}


def test_a_log_is_followed_until_the_pod_ends(world: World, browser: Browser) -> None:
    pod = world.pod("p", "sh", "-c", "echo begun; while [ ! -e over ]; do sleep 0.05; done; echo o")
    pod.phase("Running")
    log = f"logs/{world.namespace}/p"
    eventually(lambda: "There is no log" not in _start(browser, log), lambda: None)
    with browser.opens(log) as page:
        said = b""
        while b"begun\n" not in said:
            assert (block := page.read1()), "the page ends before the pod does"
            said += block
        assert b"</pre>" not in said
        pod.delete(gracePeriodSeconds=0)
        said += page.read()
    assert said.endswith(b"</pre></div><p>The log ends here.</p>")


def _start(browser: Browser, path: str) -> str:
    with browser.opens(path) as page:
        return page.read1().decode()


def test_a_pod_that_has_not_started_is_looked_at_again(world: World, browser: Browser) -> None:
    world.pod("p", "true", nodeSelector={"no": "such-node"})
    page = browser.gets(f"logs/{world.namespace}/p")
    assert page.code == 200
    assert "There is no log" in page.text
    assert '<meta http-equiv="refresh" content="2">' in page.text
    assert f'/logs/{world.namespace}/p/main">main</a>' in browser.gets().text


def test_what_others_wrote_is_text(world: World, browser: Browser) -> None:
    roles = {"Master": replica("pytorch", f"echo {json.dumps(_EVIL)}; sleep 0.1; exit 1")}
    job = world.start(pytorch_job(roles))
    job.until(lambda job: "Failed" in str(job.get("status")))
    for type_ in (_EVIL, "Normal"):
        about = {"kind": _EVIL, "name": "job", "namespace": world.namespace}
        event = {"involvedObject": about, "type": type_, "reason": _EVIL, "message": _EVIL}
        meta = {"name": f"e-{len(type_)}"}
        world.create({"apiVersion": "v1", "kind": "Event", "metadata": meta, **event})
    condition = dict.fromkeys(("type", "reason", "message", "lastTransitionTime"), _EVIL)
    status = {**job.status, "conditions": [{**condition, "status": "True"}]}
    status["replicaStatuses"] = {_EVIL: {"active": 1}}
    now = {**job.now(), "status": status}
    world.api.call("PUT", f"{job.path}/status", now).required("a status")
    log = f"logs/{world.namespace}/job-master-0"
    for path in (f"jobs/{world.namespace}/job", log):
        page = browser.gets(path).text
        assert "<script" not in page, path
        assert _ESCAPED in page, path
    assert "<script" not in browser.gets().text
    asked = browser.gets(f"jobs/x/{quote('<script>')}").text
    assert "There is no job &lt;script&gt; in namespace x" in asked
    plain = browser.gets(f"{log}?text")
    assert plain.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert plain.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("jobs/{namespace}/gone", "There is no job gone in namespace"),
        ("jobs/{namespace}/gone/worker", "It may have been deleted, or the cluster was restarted"),
        ("logs/{namespace}/gone", "There is no pod gone in namespace"),
        ("logs/{namespace}/p/other", "Pod p has no container other; it has main."),
        ("jobs", "There is no such page."),
        ("jobs/a/b/c/d", "There is no such page."),
        ("api/v1/pods", "There is no such page."),
        ("logs/{namespace}/..%2fp/main", "There is no such page."),
    ],
)
def test_what_is_not_there_is_said(world: World, browser: Browser, path: str, words: str) -> None:
    world.pod("p", "true")
    page = browser.gets(path.format(namespace=world.namespace))
    assert page.code == 404
    assert words in page.text
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"


def test_the_addresses_for_airflow_are_pages(world: World, target: LocalTarget) -> None:
    said = target.said()
    templates = dict(re.findall(r"export AIRFLOW__KFTRAIN__(\w+)='?([^'\n]+)", said))
    names = {f"{name}_URL" for name in ("TRAINING_JOB", "LEADER_LOGS", "WORKER_LOGS", "DASHBOARD")}
    assert templates.keys() == names
    roles = {"Master": replica("pytorch", "true")}
    world.start(pytorch_job(roles)).until(lambda job: "Succeeded" in str(job.get("status")))
    known = {"namespace": world.namespace, "job": "job", "pod": "job-master-0"}
    browser = Browser(target)
    for template in templates.values():
        assert template.startswith(browser.url)
        filled = template.format_map({**dict.fromkeys(PLACEHOLDERS, "pytorch"), **known})
        assert browser.gets(filled.removeprefix(browser.url)).code == 200, template


# ----- what nobody can do


def test_without_the_path_there_is_nothing(target: LocalTarget, browser: Browser) -> None:
    secret = browser.place.path.strip("/")
    assert re.fullmatch("[0-9a-f]{32}", secret)
    for path in ("/", "/jobs", f"/{secret[:-1]}/", f"/{secret}", f"/{secret}0/", f"/{'0' * 32}/"):
        answer = browser.gets(path)
        assert (answer.code, answer.text) == (404, "404 page not found\n")
    assert browser.gets(host="evil.example").code == 404
    assert browser.gets().code == 200


def test_the_page_is_no_key_to_the_api(target: LocalTarget, browser: Browser) -> None:
    """Nor does it reveal the path of the API."""
    config = yaml.safe_load(target.kubeconfig.read_text(encoding="utf-8"))
    api = urlsplit(config["clusters"][0]["cluster"]["server"]).path.strip("/")
    assert api not in browser.place.path
    for path in ("", "jobs/default/x", "api/v1/pods", "version"):
        answer = browser.gets(path)
        assert api not in answer.text + str(answer.headers)
        assert answer.headers["Content-Type"] == "text/html; charset=utf-8"


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE"])
def test_it_can_only_be_looked_at(world: World, browser: Browser, method: str) -> None:
    world.pod("p", "sleep", "60")
    for path in ("", f"logs/{world.namespace}/p", f"api/v1/namespaces/{world.namespace}/pods/p"):
        assert browser.gets(path, method).code == 405
    assert world.names("Pod") == ["p"]


def test_a_browser_is_told_to_run_and_load_nothing(world: World, browser: Browser) -> None:
    world.pod("p", "true").ends()
    for path in ("", f"logs/{world.namespace}/p", "jobs/x/gone"):
        answer = browser.gets(path)
        policy = answer.headers["Content-Security-Policy"]
        assert re.fullmatch(
            r"default-src 'none'; style-src 'sha256-[^']+'; base-uri 'none'; "
            r"form-action 'self'; frame-ancestors 'none'",
            policy,
        )
        assert answer.headers["Referrer-Policy"] == "no-referrer"
        assert not re.search(r"<script|<form|src=|//|\bon\w+=", answer.text)
