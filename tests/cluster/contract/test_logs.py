"""Logs of pods, through the API server."""

from __future__ import annotations

import re
import threading
from datetime import datetime, timezone

import pytest

from tests.cluster.jobs import shell
from tests.cluster.world import Pod, World, eventually
from tests.control_plane.api import Answer, Manifest

LINES = "for i in 1 2 3 4; do echo line $i; done"


def ended(world: World, script: str = LINES) -> Pod:
    pod = world.pod("p", *shell(script))
    pod.ends()
    return pod


def refused(answer: Answer, message: str) -> None:
    assert (answer.code, answer.reason) == (400, "BadRequest")
    assert answer.message == message


def started(world: World, script: str, **spec: object) -> Pod:
    """A pod that has written something."""
    pod = world.pod("p", *shell(script), **spec)
    eventually(lambda: (said := pod.log()).ok and said.text, pod.now)
    return pod


# ----- options


@pytest.mark.parametrize(
    ("options", "text"),
    [
        pytest.param({}, "line 1\nline 2\nline 3\nline 4\n", id="all"),
        pytest.param({"tailLines": 2}, "line 3\nline 4\n", id="tail"),
        pytest.param({"tailLines": 0}, "", id="tail-none"),
        pytest.param({"tailLines": 99}, "line 1\nline 2\nline 3\nline 4\n", id="tail-more"),
        pytest.param({"limitBytes": 9}, "line 1\nli", id="bytes"),
        pytest.param({"tailLines": 2, "limitBytes": 6}, "line 3", id="tail-and-bytes"),
        pytest.param({"sinceSeconds": 3600}, "line 1\nline 2\nline 3\nline 4\n", id="seconds"),
        pytest.param({"sinceTime": "2999-01-01T00:00:00Z"}, "", id="since-later"),
        pytest.param({"container": "main"}, "line 1\nline 2\nline 3\nline 4\n", id="container"),
    ],
)
def test_log_after_the_end(world: World, options: Manifest, text: str) -> None:
    answer = ended(world).log(**options)
    assert (answer.code, answer.text) == (200, text)


def test_timestamps_are_of_utc_with_fractions(world: World) -> None:
    answer = ended(world).log(timestamps="true", tailLines=1)
    found = re.fullmatch(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\.\d+Z line 4\n", answer.text)
    assert found, answer.text
    said = datetime.fromisoformat(found[1]).replace(tzinfo=timezone.utc)
    assert abs((datetime.now(timezone.utc) - said).total_seconds()) < 60


def test_lines_before_since_seconds_are_left_out(world: World) -> None:
    pod = started(world, "echo old; sleep 3; echo new")
    pod.ends()
    assert pod.log(sinceSeconds=2).text == "new\n"


def test_a_last_line_without_a_newline(world: World) -> None:
    assert ended(world, "printf 'a\\nb'").log().text == "a\nb"


def test_standard_error_is_in_the_log(world: World) -> None:
    assert ended(world, "echo out; echo err >&2").log().text == "out\nerr\n"


def test_a_pod_that_says_nothing_has_an_empty_log(world: World) -> None:
    answer = ended(world, "true").log()
    assert (answer.code, answer.text) == (200, "")


@pytest.mark.parametrize(
    ("options", "field"),
    [
        pytest.param({"tailLines": -1}, "tailLines", id="tail"),
        pytest.param({"limitBytes": 0}, "limitBytes", id="bytes"),
        pytest.param({"sinceSeconds": 0}, "sinceSeconds", id="seconds"),
        pytest.param(
            {"sinceSeconds": 1, "sinceTime": "2999-01-01T00:00:00Z"}, "sinceTime", id="two-since"
        ),
    ],
)
def test_options_that_make_no_sense_are_invalid(
    world: World, options: Manifest, field: str
) -> None:
    answer = world.pod("p", "true").log(**options)
    assert (answer.code, answer.reason) == (422, "Invalid")
    assert field in answer.message


# ----- following


def test_a_log_is_followed_until_the_end(world: World) -> None:
    pod = started(world, "for i in 1 2 3 4; do echo line $i; sleep 0.4; done")
    assert pod.log(follow="true").text == "line 1\nline 2\nline 3\nline 4\n"
    assert pod.ends()["phase"] == "Succeeded"


def test_a_log_is_followed_from_its_last_lines_on(world: World) -> None:
    pod = started(world, "echo a; echo b; sleep 2; echo c")
    assert pod.log(follow="true", tailLines=1).text == "b\nc\n"


def test_following_a_pod_that_has_ended_gives_all_at_once(world: World) -> None:
    assert ended(world).log(follow="true", tailLines=1).text == "line 4\n"


def test_following_ends_with_the_deletion_of_the_pod(world: World) -> None:
    pod = started(world, "echo up; sleep 1000", terminationGracePeriodSeconds=1)
    answers: list[Answer] = []
    thread = threading.Thread(target=lambda: answers.append(pod.log(follow="true")))
    thread.start()
    pod.delete()
    thread.join(30)
    assert [answer.text for answer in answers] == ["up\n"]


def test_following_ends_with_the_run_not_with_the_pod(world: World) -> None:
    pod = started(world, "echo up; sleep 1; exit 1", restartPolicy="OnFailure")
    assert pod.log(follow="true").text == "up\n"
    assert pod.status["phase"] == "Running"


def test_a_pod_that_starts_later_is_followed_once_it_runs(world: World) -> None:
    missing = {"envFrom": [{"configMapRef": {"name": "late"}}]}
    pod = world.pod("p", *shell("echo a; sleep 0.5; echo b"), container=missing)
    wait = 'container "main" in pod "p" is waiting to start: CreateContainerConfigError'
    eventually(lambda: pod.log(follow="true").message == wait, pod.now)
    refused(pod.log(follow="true"), wait)
    world.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "late"}})
    answer = eventually(lambda: found if (found := pod.log(follow="true")).ok else None)
    assert answer.text == "a\nb\n"


# ----- previous


def test_the_log_of_the_run_before(world: World) -> None:
    pod = world.pod("p", *shell("echo run; exit 1"), restartPolicy="OnFailure")
    pod.until(lambda now: now["status"].get("containerStatuses", [{}])[0].get("restartCount"))
    assert pod.log(previous="true").text == "run\n"


def test_a_crash_loop_shows_the_log_of_its_last_run(world: World) -> None:
    pod = world.pod("p", *shell("echo run; exit 1"), restartPolicy="OnFailure")

    def waits(now: Manifest) -> bool:
        (main,) = now["status"].get("containerStatuses") or [{}]
        return bool(main.get("state", {}).get("waiting", {}).get("reason") == "CrashLoopBackOff")

    pod.until(waits)
    assert pod.log().text == pod.log(previous="true").text == "run\n"


def test_without_a_run_before_previous_is_refused(world: World) -> None:
    pod = ended(world)
    refused(
        pod.log(previous="true"),
        'previous terminated container "main" in pod "p" not found',
    )


# ----- which container


def test_a_container_that_does_not_exist(world: World) -> None:
    pod = ended(world)
    refused(pod.log(container="no"), "container no is not valid for pod p")


def test_of_several_containers_one_has_to_be_named(world: World) -> None:
    def said(name: str) -> Manifest:
        return {"name": name, "image": "x", "command": ["echo", name]}

    pod = world.pod("p", containers=[said("a"), said("b")], initContainers=[said("first")])
    pod.ends()
    refused(
        pod.log(),
        "a container name must be specified for pod p, choose one of: [first a b]",
    )
    assert [pod.log(container=name).text for name in ("first", "a", "b")] == [
        "first\n",
        "a\n",
        "b\n",
    ]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        pytest.param({"image": "missing/image"}, "trying and failing to pull image", id="pull"),
        pytest.param({"image": "invalid//name"}, "InvalidImageName", id="image"),
        pytest.param(
            {"envFrom": [{"secretRef": {"name": "no"}}]},
            "CreateContainerConfigError",
            id="secret",
        ),
    ],
)
def test_a_container_that_waits_has_no_log(world: World, fields: Manifest, reason: str) -> None:
    pod = world.pod("p", "true", container=fields)
    message = f'container "main" in pod "p" is waiting to start: {reason}'
    eventually(lambda: pod.log().message == message, lambda: [pod.now(), pod.log()])
    refused(pod.log(), message)


def test_the_main_container_has_no_log_while_init_containers_run(world: World) -> None:
    first = {"name": "first", "image": "x", "command": shell("echo up; sleep 1000")}
    pod = world.pod("p", "true", initContainers=[first], terminationGracePeriodSeconds=1)
    eventually(lambda: pod.log(container="first").text == "up\n", pod.now)
    refused(pod.log(), 'container "main" in pod "p" is waiting to start: PodInitializing')


def test_a_pod_without_a_node_has_an_empty_log(world: World) -> None:
    pod = world.pod("p", "true", nodeSelector={"no-such": "label"})
    answer = pod.log()
    assert (answer.code, answer.text) == (204, "")


def test_a_pod_that_does_not_exist(world: World) -> None:
    answer = Pod(world, "no").log()
    assert (answer.code, answer.reason) == (404, "NotFound")
    assert answer.message == 'pods "no" not found'
