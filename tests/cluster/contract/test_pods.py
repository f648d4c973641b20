"""Pods, from the scheduler to their end."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.cluster.jobs import shell
from tests.cluster.objects import config_map
from tests.cluster.world import Pod, World, eventually
from tests.control_plane.api import MERGE, Answer, Manifest

GPU = "nvidia.com/gpu"
FOREVER = ("sleep", "1000")


def container(name: str, script: str, **fields: Any) -> Manifest:
    return {"name": name, "image": "x", "command": shell(script), **fields}


def secret(world: World, name: str, **data: str) -> None:
    metadata = {"name": name}
    world.create({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data})


def main_of(pod: Manifest) -> Manifest:
    """The status of the first container; empty before it exists."""
    return dict((pod["status"].get("containerStatuses") or [{}])[0])


def waits(pod: Manifest) -> Any:
    """The reason for which the first container waits."""
    return main_of(pod).get("state", {}).get("waiting", {}).get("reason")


def is_running(pod: Manifest) -> bool:
    return "running" in main_of(pod).get("state", {})


def conditions(pod: Manifest) -> dict[str, tuple[str, str | None]]:
    """(status, reason) of the four conditions that clients read."""
    listed = pod["status"].get("conditions") or []
    kinds = ("PodScheduled", "Initialized", "ContainersReady", "Ready")
    return {c["type"]: (c["status"], c.get("reason")) for c in listed if c["type"] in kinds}


def the_end(status: Manifest) -> Manifest:
    return dict(status["containerStatuses"][0]["state"]["terminated"])


def gpus(number: int) -> Manifest:
    return {"resources": {"limits": {GPU: number}}}


def wait_until_gone(pod: Pod) -> None:
    eventually(pod.is_gone, pod.now)


# ----- ends


@pytest.mark.parametrize(
    ("script", "phase", "code", "reason"),
    [
        pytest.param("exit 0", "Succeeded", 0, "Completed", id="0"),
        pytest.param("exit 3", "Failed", 3, "Error", id="3"),
        pytest.param("exit 255", "Failed", 255, "Error", id="255"),
        pytest.param("kill -9 $$$$", "Failed", 137, "Error", id="SIGKILL"),
        pytest.param("kill -11 $$$$", "Failed", 139, "Error", id="SIGSEGV"),
        pytest.param("kill -15 $$$$", "Failed", 143, "Error", id="SIGTERM"),
    ],
)
def test_the_end_of_a_container_decides_phase_and_exit_code(
    world: World, script: str, phase: str, code: int, reason: str
) -> None:
    status = world.pod("p", *shell(script)).ends()
    assert status["phase"] == phase
    end = the_end(status)
    assert (end["exitCode"], end["reason"]) == (code, reason)
    assert end["startedAt"] <= end["finishedAt"]
    assert not status["containerStatuses"][0]["ready"]
    assert status["containerStatuses"][0]["restartCount"] == 0


def test_memory_beyond_the_limit_is_oom_killed(world: World) -> None:
    program = "import time; x = bytearray(300 << 20); time.sleep(60)"
    limits = {"resources": {"limits": {"memory": "100Mi"}}}
    end = the_end(world.pod("p", "python", "-c", program, container=limits).ends())
    assert (end["exitCode"], end["reason"]) == (137, "OOMKilled")


def test_a_pod_fails_when_one_of_its_containers_does_but_only_after_the_others(
    world: World,
) -> None:
    good, bad = container("good", "sleep 1"), container("bad", "exit 4")
    pod = world.pod("p", containers=[bad, good])
    pod.until(lambda now: "terminated" in main_of(now).get("state", {}))
    status = pod.ends()
    ends = {c["name"]: c["state"]["terminated"]["exitCode"] for c in status["containerStatuses"]}
    assert (status["phase"], ends) == ("Failed", {"bad": 4, "good": 0})


def test_active_deadline_of_a_pod_fails_it(world: World) -> None:
    pod = world.pod("p", *FOREVER, activeDeadlineSeconds=1, terminationGracePeriodSeconds=1)
    status = pod.ends()
    assert (status["phase"], status["reason"]) == ("Failed", "DeadlineExceeded")
    assert status["message"] == "Pod was active on the node longer than the specified deadline"
    assert world.told("DeadlineExceeded", "Pod/p").type == "Warning"


def test_a_pod_that_others_have_failed_ends_for_their_reason(world: World) -> None:
    pod = world.pod("p", *FOREVER)
    pod.until(is_running)
    evicted = {"phase": "Failed", "reason": "Evicted", "message": "The node was low on memory."}
    answer = world.api.call("PATCH", f"{pod.path}/status", {"status": evicted}, content_type=MERGE)
    answer.required("an eviction")
    status = pod.until(lambda found: not is_running(found))["status"]
    assert {name: status[name] for name in evicted} == evicted
    assert the_end(status)["exitCode"] == 137


def test_a_deadline_counts_while_a_container_cannot_start(world: World) -> None:
    missing = {"envFrom": [{"secretRef": {"name": "no"}}]}
    pod = world.pod("p", "true", container=missing, activeDeadlineSeconds=1)
    status = pod.ends()
    assert (status["phase"], status["reason"]) == ("Failed", "DeadlineExceeded")


@pytest.mark.parametrize(
    ("script", "fields", "message"),
    [
        pytest.param("echo why > /dev/termination-log; exit 1", {}, "why\n", id="file"),
        pytest.param(
            "echo mine > /tmp/own-log",
            {"terminationMessagePath": "/tmp/own-log"},
            "mine\n",
            id="path",
        ),
        pytest.param("echo said; exit 1", {}, None, id="log-not-asked-for"),
        pytest.param(
            "seq 100; exit 1",
            {"terminationMessagePolicy": "FallbackToLogsOnError"},
            "".join(f"{i}\n" for i in range(21, 101)),
            id="last-80-lines",
        ),
        pytest.param(
            "echo said; exit 0",
            {"terminationMessagePolicy": "FallbackToLogsOnError"},
            None,
            id="no-fallback-on-success",
        ),
        pytest.param(
            "echo said; echo why > /dev/termination-log; exit 1",
            {"terminationMessagePolicy": "FallbackToLogsOnError"},
            "why\n",
            id="file-before-log",
        ),
    ],
)
def test_termination_message(
    world: World, script: str, fields: Manifest, message: str | None
) -> None:
    status = world.pod("p", *shell(script), container=fields).ends()
    assert the_end(status).get("message") == message


# ----- restarts


def test_on_failure_restarts_until_success(world: World) -> None:
    script = "test -e /work/f && exit 0; touch /work/f; exit 5"
    work = {"volumeMounts": [{"name": "work", "mountPath": "/work"}]}
    volume = {"name": "work", "emptyDir": {}}
    pod = world.pod(
        "p", *shell(script), container=work, volumes=[volume], restartPolicy="OnFailure"
    )
    status = pod.ends()
    (main,) = status["containerStatuses"]
    assert (status["phase"], main["restartCount"]) == ("Succeeded", 1)
    assert main["lastState"]["terminated"]["exitCode"] == 5
    assert the_end(status)["exitCode"] == 0


def test_always_restarts_after_success(world: World) -> None:
    pod = world.pod("p", "true", restartPolicy="Always")
    now = pod.until(lambda now: main_of(now).get("restartCount", 0) >= 1)
    assert now["status"]["phase"] == "Running"
    assert main_of(now)["lastState"]["terminated"]["reason"] == "Completed"


def test_a_container_that_fails_again_and_again_waits_in_crash_loop_back_off(world: World) -> None:
    fields = {"terminationMessagePolicy": "FallbackToLogsOnError"}
    pod = world.pod("p", *shell("echo oh; exit 7"), container=fields, restartPolicy="OnFailure")
    now = pod.until(lambda now: waits(now) == "CrashLoopBackOff")
    uid = now["metadata"]["uid"]
    which = f"p_{world.namespace}({uid})"
    assert now["status"]["phase"] == "Running"
    message = main_of(now)["state"]["waiting"]["message"]
    assert message.startswith("back-off ")
    assert message.endswith(f"s restarting failed container=main pod={which}")
    last = main_of(now)["lastState"]["terminated"]
    assert (last["exitCode"], last["reason"], last["message"]) == (7, "Error", "oh\n")
    assert conditions(now)["Ready"] == ("False", "ContainersNotReady")
    event = world.told("BackOff", "Pod/p")
    assert event.type == "Warning"
    assert event.message == f"Back-off restarting failed container main in pod {which}"


# ----- what a container gets


def test_variables_from_all_sources(world: World) -> None:
    world.create(config_map("c", one="1", two="2"))
    secret(world, "s", pw="hush")
    env: list[Manifest] = [
        {"name": "PLAIN", "value": "a"},
        {"name": "MADE", "value": "$(PLAIN)b $(LATER) $$(PLAIN)"},
        {"name": "LATER", "value": "late"},
        {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "SPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
        {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        {"name": "KEY", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "one"}}},
        {"name": "PW", "valueFrom": {"secretKeyRef": {"name": "s", "key": "pw"}}},
        {
            "name": "NO",
            "valueFrom": {"secretKeyRef": {"name": "no", "key": "no", "optional": True}},
        },
        {
            "name": "MIB",
            "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}},
        },
        {"name": "CPUS", "valueFrom": {"resourceFieldRef": {"resource": "requests.cpu"}}},
    ]
    env_from = [
        {"configMapRef": {"name": "c"}, "prefix": "P_"},
        {"secretRef": {"name": "missing", "optional": True}},
    ]
    resources = {"limits": {"memory": "256Mi"}, "requests": {"cpu": "100m"}}
    fields = {"env": env, "envFrom": env_from, "resources": resources}
    pod = world.pod("p", "env", container=fields)
    node = pod.until(lambda now: now["status"]["phase"] == "Succeeded")["spec"]["nodeName"]
    got = dict(line.partition("=")[::2] for line in pod.log().text.splitlines())
    wanted = {
        "PLAIN": "a",
        "MADE": "ab $(LATER) $(PLAIN)",
        "LATER": "late",
        "NAME": "p",
        "SPACE": world.namespace,
        "NODE": node,
        "KEY": "1",
        "PW": "hush",
        "MIB": "256",
        "CPUS": "1",
        "P_one": "1",
        "P_two": "2",
        "HOSTNAME": "p",
    }
    assert wanted.items() <= got.items()
    assert "NO" not in got
    assert "SECRET_OF_THE_AGENT" not in got


def test_command_and_arguments_are_expanded(world: World) -> None:
    env = [{"name": "WHO", "value": "you"}]
    fields = {"env": env, "args": ["for $(WHO)", "$(NOBODY)", "$$(WHO)"]}
    pod = world.pod("p", "echo", "made", container=fields)
    pod.ends()
    assert pod.log().text == "made for you $(NOBODY) $(WHO)\n"


def test_working_directory(world: World) -> None:
    pod = world.pod("p", "pwd", container={"workingDir": "/usr"})
    pod.ends()
    assert pod.log().text == "/usr\n"


def test_volumes_hold_what_the_spec_says(world: World) -> None:
    world.create(config_map("c", k="from config\n", other="not chosen"))
    secret(world, "s", pw="from secret\n")
    label = {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}
    volumes = [
        {"name": "work", "emptyDir": {}},
        {"name": "config", "configMap": {"name": "c", "items": [{"key": "k", "path": "sub/k"}]}},
        {"name": "secret", "secret": {"secretName": "s"}},
        {"name": "down", "downwardAPI": {"items": [label]}},
    ]
    mounts = [{"name": v["name"], "mountPath": f"/{v['name']}"} for v in volumes]
    script = "cat /work/f /config/sub/k /secret/pw /down/name; echo; test ! -e /config/other"
    first = container("first", "echo from init > /work/f", volumeMounts=mounts[:1])
    pod = world.pod(
        "p",
        *shell(script),
        container={"volumeMounts": mounts},
        volumes=volumes,
        initContainers=[first],
    )
    assert pod.ends()["phase"] == "Succeeded"
    assert pod.log(container="main").text == "from init\nfrom config\nfrom secret\np\n"


def test_a_pod_waits_for_a_volume_whose_config_map_is_missing(world: World) -> None:
    volume = {"name": "v", "configMap": {"name": "c"}}
    mounts = {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}
    pod = world.pod("p", "cat", "/v/k", container=mounts, volumes=[volume])
    event = world.told("FailedMount", "Pod/p")
    assert event.type == "Warning"
    assert 'configmap "c" not found' in event.message
    now = pod.now()
    assert (now["status"]["phase"], waits(now)) == ("Pending", "ContainerCreating")
    world.create(config_map("c", k="here"))
    assert pod.ends()["phase"] == "Succeeded"
    assert pod.log().text == "here"


# ----- init containers and sidecars


def test_init_containers_run_one_after_the_other_before_the_main_one(world: World) -> None:
    mounts = {"volumeMounts": [{"name": "work", "mountPath": "/work"}]}
    inits = [container(n, f"sleep 0.2; echo {n} >> /work/f", **mounts) for n in ("a", "b")]
    pod = world.pod(
        "p",
        *shell("cat /work/f"),
        container=mounts,
        initContainers=inits,
        volumes=[{"name": "work", "emptyDir": {}}],
    )
    status = pod.ends()
    assert pod.log().text == "a\nb\n"
    for init in status["initContainerStatuses"]:
        assert init["ready"]
        assert init["state"]["terminated"]["reason"] == "Completed"


def test_an_init_container_that_fails_fails_the_pod_under_never(world: World) -> None:
    inits = [container("bad", "exit 9"), container("next", "true")]
    status = world.pod("p", "true", initContainers=inits).ends()
    assert status["phase"] == "Failed"
    bad, following = status["initContainerStatuses"]
    assert bad["state"]["terminated"]["exitCode"] == 9
    assert following["state"] == {"waiting": {"reason": "PodInitializing"}}
    assert status["containerStatuses"][0]["state"] == {"waiting": {"reason": "PodInitializing"}}


def test_an_init_container_is_tried_again_under_on_failure(world: World) -> None:
    inits = [container("bad", "exit 9")]
    pod = world.pod("p", "true", initContainers=inits, restartPolicy="OnFailure")

    def again(now: Manifest) -> bool:
        (init,) = now["status"].get("initContainerStatuses") or [{}]
        return bool(init.get("restartCount", 0) >= 1)

    now = pod.until(again)
    assert now["status"]["phase"] == "Pending"
    assert conditions(now)["Initialized"] == ("False", "ContainersNotInitialized")


def test_a_sidecar_runs_beside_the_main_container_and_ends_after_it(world: World) -> None:
    mounts = {"volumeMounts": [{"name": "work", "mountPath": "/work"}]}
    script = "trap 'echo told to end; exit 0' TERM; touch /work/up; while :; do sleep 0.1; done"
    sidecar = container("side", script, restartPolicy="Always", **mounts)
    pod = world.pod(
        "p",
        *shell("while [ ! -e /work/up ]; do sleep 0.1; done"),
        container=mounts,
        initContainers=[sidecar],
        volumes=[{"name": "work", "emptyDir": {}}],
    )
    status = pod.ends()
    assert status["phase"] == "Succeeded"
    (side,) = status["initContainerStatuses"]
    assert side["state"]["terminated"]["exitCode"] == 0
    assert pod.log(container="side").text.endswith("told to end\n")


# ----- conditions


def test_conditions_of_a_pod_on_its_way(world: World) -> None:
    # Each step waits for a config map, so that each can be seen.
    first = container("first", "true", envFrom=[{"configMapRef": {"name": "a"}}])
    main = {"envFrom": [{"configMapRef": {"name": "b"}}]}
    pod = world.pod("p", *FOREVER, container=main, initContainers=[first])
    not_ready = ("False", "ContainersNotReady")
    scheduled = {"PodScheduled": ("True", None)}
    unready = {"ContainersReady": not_ready, "Ready": not_ready}
    initialised = {"Initialized": ("True", None)}
    pod.until(
        lambda now: (
            conditions(now)
            == {**scheduled, **unready, "Initialized": ("False", "ContainersNotInitialized")}
        )
    )
    world.create(config_map("a", x="1"))
    now = pod.until(lambda now: conditions(now) == {**scheduled, **unready, **initialised})
    assert now["status"]["phase"] == "Pending"
    world.create(config_map("b", x="1"))
    ready = {"ContainersReady": ("True", None), "Ready": ("True", None)}
    now = pod.until(lambda now: conditions(now) == {**scheduled, **ready, **initialised})
    assert now["status"]["phase"] == "Running"
    assert now["status"]["podIP"] == now["status"]["podIPs"][0]["ip"]
    assert now["status"]["startTime"]
    assert main_of(now)["ready"]
    assert main_of(now)["started"]


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        pytest.param("true", "PodCompleted", id="Succeeded"),
        pytest.param("false", "PodFailed", id="Failed"),
    ],
)
def test_a_pod_that_has_ended_is_not_ready(world: World, script: str, reason: str) -> None:
    pod = world.pod("p", *shell(script))
    pod.ends()
    found = conditions(pod.now())
    assert found["Ready"] == found["ContainersReady"] == ("False", reason)
    assert found["PodScheduled"][0] == found["Initialized"][0] == "True"


def test_messages_of_conditions_name_the_containers_that_hold_up(world: World) -> None:
    first = container("first", "true", envFrom=[{"configMapRef": {"name": "no"}}])
    pod = world.pod("p", "true", initContainers=[first])
    now = pod.until(lambda now: "Ready" in conditions(now))
    messages = {c["type"]: c.get("message") for c in now["status"]["conditions"]}
    assert messages["Initialized"] == "containers with incomplete status: [first]"
    assert messages["Ready"] == "containers with unready status: [main]"


# ----- scheduling


def test_too_many_gpus_leave_a_pod_unscheduled(world: World) -> None:
    pod = world.pod("p", "true", container=gpus(99))
    now = pod.until(lambda now: conditions(now).get("PodScheduled") == ("False", "Unschedulable"))
    (condition,) = now["status"]["conditions"]
    assert condition["message"].startswith(f"0/1 nodes are available: 1 Insufficient {GPU}.")
    assert now["status"]["phase"] == "Pending"
    assert "nodeName" not in now["spec"]
    assert not now["status"].get("containerStatuses")
    event = world.told("FailedScheduling", "Pod/p")
    assert (event.type, event.message) == ("Warning", condition["message"])


def test_events_of_the_scheduler_have_neither_count_nor_last_timestamp(world: World) -> None:
    world.pod("p", "true", container=gpus(99))
    world.told("FailedScheduling", "Pod/p")
    listed = world.api.call("GET", world.path("Event")).required("the events")["items"]
    (event,) = (item for item in listed if item["reason"] == "FailedScheduling")
    assert event["lastTimestamp"] is event["firstTimestamp"] is None
    assert "count" not in event
    assert event["eventTime"]
    assert event["reportingComponent"] == "default-scheduler"
    assert event["action"] == "Scheduling"


def test_a_pod_is_scheduled_when_another_one_frees_its_gpus(world: World) -> None:
    holder = world.pod("holder", *FOREVER, container=gpus(4), terminationGracePeriodSeconds=1)
    holder.phase("Running")
    waiting = world.pod("waiting", "true", container=gpus(1))
    waiting.until(lambda now: conditions(now).get("PodScheduled") == ("False", "Unschedulable"))
    holder.delete()
    assert waiting.ends()["phase"] == "Succeeded"
    assert conditions(waiting.now())["PodScheduled"] == ("True", None)


def test_a_node_selector_that_nothing_matches_leaves_a_pod_unscheduled(world: World) -> None:
    pod = world.pod("p", "true", nodeSelector={"no-such": "label"})
    now = pod.until(lambda now: conditions(now).get("PodScheduled") == ("False", "Unschedulable"))
    (condition,) = now["status"]["conditions"]
    wanted = "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector."
    assert condition["message"].startswith(wanted)


def test_events_of_a_pod_that_runs(world: World) -> None:
    pod = world.pod("p", "true")
    node = pod.until(lambda now: now["spec"].get("nodeName"))["spec"]["nodeName"]
    message = f"Successfully assigned {world.namespace}/p to {node}"
    assert world.told("Scheduled", "Pod/p").message == message
    assert world.told("Started", "Pod/p").type == "Normal"


# ----- what cannot start


@pytest.mark.parametrize(
    ("fields", "reason", "message"),
    [
        pytest.param(
            {"image": "invalid//name"}, "InvalidImageName", "invalid reference format", id="image"
        ),
        pytest.param(
            {"image": "missing/image"},
            "ImagePullBackOff",
            'Back-off pulling image "missing/image"',
            id="pull",
        ),
        pytest.param(
            {"envFrom": [{"secretRef": {"name": "no"}}]},
            "CreateContainerConfigError",
            'secret "no" not found',
            id="secret",
        ),
        pytest.param(
            {
                "env": [
                    {
                        "name": "V",
                        "valueFrom": {"configMapKeyRef": {"name": "no", "key": "k"}},
                    }
                ]
            },
            "CreateContainerConfigError",
            'configmap "no" not found',
            id="config-map",
        ),
        pytest.param(
            {"command": ["no-such-program"]},
            "CreateContainerError",
            "no-such-program",
            id="command",
        ),
    ],
)
def test_what_cannot_start_waits_and_says_why(
    world: World, fields: Manifest, reason: str, message: str
) -> None:
    pod = world.pod("p", "true", container=fields)
    now = pod.until(lambda now: waits(now) == reason)
    assert now["status"]["phase"] == "Pending"
    assert message in main_of(now)["state"]["waiting"]["message"]
    assert main_of(now)["restartCount"] == 0
    event = world.told("Failed", "Pod/p")
    told = reason if reason in ("InvalidImageName", "ImagePullBackOff") else message
    assert event.type == "Warning"
    assert event.message.startswith("Error: ")
    assert told in event.message


def test_a_pod_starts_once_its_missing_secret_is_there(world: World) -> None:
    missing = {"envFrom": [{"secretRef": {"name": "s"}}]}
    pod = world.pod("p", *shell("echo $key"), container=missing)
    pod.until(lambda now: waits(now) == "CreateContainerConfigError")
    secret(world, "s", key="found")
    assert pod.ends()["phase"] == "Succeeded"
    assert pod.log().text == "found\n"


def test_a_key_that_its_secret_does_not_have_is_a_config_error(world: World) -> None:
    secret(world, "s", other="x")
    env = [{"name": "V", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]
    pod = world.pod("p", "true", container={"env": env})
    now = pod.until(lambda now: waits(now) == "CreateContainerConfigError")
    message = f"couldn't find key k in Secret {world.namespace}/s"
    assert main_of(now)["state"]["waiting"]["message"] == message


# ----- deletion


def test_deletion_of_a_running_pod_is_announced_and_its_first_process_told(world: World) -> None:
    loop = "while :; do sleep 0.1; done"
    child = f"trap 'touch /work/told' TERM; echo up; {loop}"
    script = f"trap 'sleep 0.5; test ! -e /work/told; exit $?' TERM; ({child}) & {loop}"
    mount = {"volumeMounts": [{"name": "v", "mountPath": "/work"}]}
    spec = {"terminationGracePeriodSeconds": 20, "volumes": [{"name": "v", "emptyDir": {}}]}
    pod = world.pod("p", *shell(script), container=mount, **spec)
    eventually(lambda: pod.log().text == "up\n", pod.now)
    with world.api.watch(world.path("Pod"), resourceVersion="0") as watch:
        answer = pod.delete()
        assert answer.code == 200
        assert answer.object["metadata"]["deletionTimestamp"]
        assert answer.object["metadata"]["deletionGracePeriodSeconds"] == 20
        states = []
        for event in watch:
            states.append(event["object"])
            if event["type"] == "DELETED":
                break
    assert states[-1]["metadata"]["deletionGracePeriodSeconds"] == 0
    assert the_end(states[-1]["status"])["exitCode"] == 0
    assert states[-1]["status"]["phase"] == "Succeeded"
    assert world.told("Killing", "Pod/p").message == "Stopping container main"


def test_a_process_that_ignores_term_is_killed_after_the_grace_period(world: World) -> None:
    script = "trap '' TERM; echo up; while :; do sleep 0.1; done"
    pod = world.pod("p", *shell(script))
    eventually(lambda: pod.log().text == "up\n", pod.now)
    start = time.monotonic()
    with world.api.watch(world.path("Pod"), resourceVersion="0") as watch:
        assert pod.delete(gracePeriodSeconds=1).code == 200
        last = next(event["object"] for event in watch if event["type"] == "DELETED")
    assert 0.8 < time.monotonic() - start < 25
    assert last["status"]["phase"] == "Failed"
    assert the_end(last["status"])["exitCode"] == 137


def test_forced_deletion_removes_a_running_pod_at_once(world: World) -> None:
    pod = world.pod("p", *FOREVER)
    pod.phase("Running")
    assert pod.delete(gracePeriodSeconds=0).code == 200
    assert pod.is_gone()


@pytest.mark.parametrize("script", ["true", "false"])
def test_a_pod_that_has_ended_is_deleted_whatever_its_grace_period(
    world: World, script: str
) -> None:
    pod = world.pod("p", script, terminationGracePeriodSeconds=600)
    pod.ends()
    assert pod.delete().code == 200
    wait_until_gone(pod)


def test_a_pod_that_was_never_scheduled_is_deleted_at_once(world: World) -> None:
    pod = world.pod("p", "true", nodeSelector={"no-such": "label"})
    assert pod.delete().code == 200
    assert pod.is_gone()


def test_a_pod_that_cannot_start_is_deleted(world: World) -> None:
    pod = world.pod("p", "true", container={"image": "invalid//name"})
    pod.until(lambda now: waits(now) == "InvalidImageName")
    pod.delete()
    wait_until_gone(pod)


def test_a_pod_with_a_finalizer_stays_ended_until_that_is_taken_off(world: World) -> None:
    pod = world.pod("p", *FOREVER, terminationGracePeriodSeconds=1)
    pod.phase("Running")
    patch(world, pod, {"metadata": {"finalizers": ["example.com/hold"]}})
    pod.delete()
    now = pod.until(lambda now: "terminated" in main_of(now)["state"])
    now = pod.until(lambda now: now["metadata"]["deletionGracePeriodSeconds"] == 0)
    assert now["metadata"]["deletionTimestamp"]
    patch(world, pod, {"metadata": {"finalizers": None}})
    wait_until_gone(pod)


def test_deletion_with_the_uid_of_another_pod_is_a_conflict(world: World) -> None:
    pod = world.pod("p", "true")
    refused = pod.delete(preconditions={"uid": "00000000-0000-0000-0000-000000000000"})
    assert (refused.code, refused.reason) == (409, "Conflict")
    assert "the UID in the precondition (00000000-0000-0000-0000-000000000000)" in refused.message
    assert not pod.is_gone()


# ----- the API


def patch(world: World, pod: Pod, body: Manifest) -> Answer:
    return world.api.call("PATCH", pod.path, body, content_type=MERGE)


def test_the_spec_of_a_pod_cannot_be_changed(world: World) -> None:
    pod = world.pod("p", *FOREVER)
    refused = patch(world, pod, {"spec": {"restartPolicy": "Always"}})
    assert (refused.code, refused.reason) == (422, "Invalid")
    assert refused.message.startswith(
        'Pod "p" is invalid: spec: Forbidden: pod updates may not change fields other than'
    )


def test_metadata_of_a_running_pod_can_be_changed(world: World) -> None:
    pod = world.pod("p", *FOREVER)
    pod.phase("Running")
    answer = patch(world, pod, {"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}})
    assert answer.code == 200
    assert answer.object["metadata"]["labels"] == {"a": "b"}
    assert answer.object["metadata"]["annotations"]["c"] == "d"


def test_defaults_are_filled_in_at_creation(world: World) -> None:
    bare = {"containers": [{"name": "main", "image": "a/b", "command": ["true"]}]}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": bare}
    created = world.create(body)
    assert created["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
    spec = created["spec"]
    defaults = {
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "schedulerName": "default-scheduler",
        "securityContext": {},
        "enableServiceLinks": True,
        "priority": 0,
        "preemptionPolicy": "PreemptLowerPriority",
    }
    assert defaults.items() <= spec.items()
    assert {t["key"]: t["tolerationSeconds"] for t in spec["tolerations"]} == {
        "node.kubernetes.io/not-ready": 300,
        "node.kubernetes.io/unreachable": 300,
    }
    (main,) = spec["containers"]
    assert main == {
        "name": "main",
        "image": "a/b",
        "command": ["true"],
        "resources": {},
        "terminationMessagePath": "/dev/termination-log",
        "imagePullPolicy": "Always",
        "terminationMessagePolicy": "File",
    }


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        pytest.param("a/b:1.0", "IfNotPresent", id="tag"),
        pytest.param("a/b:latest", "Always", id="latest"),
        pytest.param("a/b", "Always", id="no-tag"),
    ],
)
def test_the_image_decides_the_pull_policy(world: World, image: str, policy: str) -> None:
    pod = world.pod("p", "true", container={"image": image})
    assert pod.now()["spec"]["containers"][0]["imagePullPolicy"] == policy


def test_limits_become_requests(world: World) -> None:
    limits = {"resources": {"limits": {"memory": "64Mi", "cpu": "100m", GPU: 1}}}
    now = world.pod("p", "true", container=limits).now()
    resources = now["spec"]["containers"][0]["resources"]
    assert (
        resources["requests"] == resources["limits"] == {"memory": "64Mi", "cpu": "100m", GPU: "1"}
    )
    assert now["status"]["qosClass"] == "Guaranteed"


def test_a_pod_that_is_bound_cannot_be_bound_again(world: World) -> None:
    pod = world.pod("p", *FOREVER)
    node = pod.until(lambda now: now["spec"].get("nodeName"))["spec"]["nodeName"]
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "p"},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "other"},
    }
    refused = world.api.call("POST", f"{pod.path}/binding", body)
    assert (refused.code, refused.reason) == (409, "Conflict")
    assert f'pod p is already assigned to node "{node}"' in refused.message


def test_an_evicted_pod_gets_sigterm_and_says_why_it_ends(world: World) -> None:
    script = "trap 'sleep 2; exit 143' TERM; echo started; sleep 300 & wait"
    pod = world.pod("p", "sh", "-c", script)
    pod.until(lambda now: now["status"]["phase"] == "Running")
    pod.until(lambda _: "started" in pod.log().text)
    hold = {"metadata": {"finalizers": ["example.com/hold"]}}  # so that its end is seen
    world.api.call("PATCH", pod.path, hold, content_type=MERGE).required("a finalizer")
    pod.evict()
    ended = pod.until(lambda now: now["status"]["phase"] == "Failed")
    (target,) = (
        item for item in ended["status"]["conditions"] if item["type"] == "DisruptionTarget"
    )
    assert (target["status"], target["reason"]) == ("True", "EvictionByEvictionAPI")
    assert ended["metadata"]["deletionTimestamp"]
    assert "reason" not in ended["status"]
    freed = {"metadata": {"finalizers": None}}
    world.api.call("PATCH", pod.path, freed, content_type=MERGE).required("the finalizer removed")
    eventually(lambda: "p" not in world.names("Pod"), pod.world.events)


def test_a_name_that_is_taken_is_a_conflict(world: World) -> None:
    made = world.pod("p", "true").now()
    refused = world.try_create({**made, "metadata": {"name": "p"}})
    assert (refused.code, refused.reason) == (409, "AlreadyExists")
    assert refused.message == 'pods "p" already exists'


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        pytest.param(
            {"container": {"env": [{"name": "A=B", "value": "x"}]}},
            "spec.containers[0].env[0].name: Invalid value",
            id="env",
        ),
        pytest.param(
            {"container": {"volumeMounts": [{"name": "no", "mountPath": "/x"}]}},
            'spec.containers[0].volumeMounts[0].name: Not found: "no"',
            id="mount",
        ),
        pytest.param(
            {"restartPolicy": "Sometimes"}, "spec.restartPolicy: Unsupported value", id="policy"
        ),
    ],
)
def test_a_pod_that_is_not_valid_is_refused(world: World, spec: Manifest, message: str) -> None:
    rest = dict(spec)
    main = {"name": "main", "image": "x", **rest.pop("container", {})}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}
    refused = world.try_create({**body, "spec": {"containers": [main], **rest}})
    assert (refused.code, refused.reason) == (422, "Invalid")
    assert refused.message.startswith(f'Pod "p" is invalid: {message}')
