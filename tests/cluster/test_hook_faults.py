"""Hooks: what goes wrong on the way"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from airflow_kftrain.errors import (
    ClusterError,
    Conflict,
    Expired,
    Unauthorized,
    Unreachable,
)
from airflow_kftrain.hooks import credentials
from airflow_kftrain.kinds import PYTORCH_JOB
from kftrain_local.faults.command import Fault, FaultProxy, running
from tests.cluster.hooks import CONNECTION, Looped, meanwhile, set_connection, with_owner
from tests.cluster.objects import still_job
from tests.cluster.world import World, eventually
from tests.control_plane.api import Manifest


@pytest.fixture
def proxy(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultProxy]:
    with running(FaultProxy(world.target.kubeconfig)) as proxy:
        set_connection(monkeypatch, kube_config_path=str(proxy.kubeconfig))
        yield proxy


@pytest.fixture
def hook(proxy: FaultProxy) -> Iterator[Any]:
    with Looped(CONNECTION) as looped:
        yield looped


def still(world: World, **metadata: Any) -> Manifest:
    return with_owner(still_job(**metadata), world.namespace)


def creates(proxy: FaultProxy) -> int:
    return proxy.calls["create", "pytorchjobs"]


@pytest.mark.parametrize("code", [429, 500, 503, 504])
def test_a_submit_outlasts_trouble_of_the_cluster(
    hook: Any, world: World, proxy: FaultProxy, code: int
) -> None:
    proxy.add(Fault(verb="create", resource="pytorchjobs", code=code, times=2))
    created = hook.submit(PYTORCH_JOB, still(world))
    assert created["metadata"]["name"] == "job"
    assert creates(proxy) == 3


def test_a_submit_comes_back_when_it_is_told_to(hook: Any, world: World, proxy: FaultProxy) -> None:
    proxy.add(Fault(verb="create", code=429, retry_after=3, times=1))
    began = time.monotonic()
    hook.submit(PYTORCH_JOB, still(world))
    assert time.monotonic() - began >= 3


def test_a_submit_that_is_refused_is_not_tried_again(
    hook: Any, world: World, proxy: FaultProxy
) -> None:
    proxy.add(Fault(verb="create", resource="pytorchjobs", code=409))
    with pytest.raises(Conflict):
        hook.submit(PYTORCH_JOB, still(world))
    assert creates(proxy) == 1


def test_a_submit_whose_answer_gets_lost_finds_its_own_job(
    hook: Any, world: World, proxy: FaultProxy
) -> None:
    proxy.add(Fault(verb="create", resource="pytorchjobs", cut=0, times=1))
    created = hook.submit(PYTORCH_JOB, still(world))
    assert created["metadata"]["name"] == "job"
    assert creates(proxy) == 2
    assert proxy.calls["get", "pytorchjobs"] == 1


def test_a_submit_outlasts_a_cluster_that_is_away(
    hook: Any, world: World, proxy: FaultProxy
) -> None:
    proxy.away(1.5)
    assert hook.submit(PYTORCH_JOB, still(world))["metadata"]["name"] == "job"


def test_all_reading_outlasts_trouble(hook: Any, world: World, proxy: FaultProxy) -> None:
    hook.submit(PYTORCH_JOB, still(world))
    world.pod("p", "echo", "hello").ends()
    proxy.add(Fault(code=503, share=0.5))
    place = (PYTORCH_JOB, world.namespace, "job")
    assert hook.get(*place) is not None
    assert len(list(hook.list(*place[:2]))) == 1
    assert hook.pods(*place) == []
    assert hook.log(world.namespace, "p", "main") == "hello\n"
    hook.events(world.namespace, ["job", "p"])
    patched = hook.patch(*place, {"metadata": {"annotations": {"a": "b"}}})
    assert hook.delete(*place, uid=patched["metadata"]["uid"])


def test_credentials_that_are_not_taken_are_made_anew(
    hook: Any, world: World, proxy: FaultProxy
) -> None:
    assert hook.get(PYTORCH_JOB, world.namespace, "job") is None
    fault = proxy.add(Fault(code=401, times=1))
    assert hook.get(PYTORCH_JOB, world.namespace, "job") is None
    assert fault.hits == 1


def test_credentials_that_are_never_taken_are_an_error(
    hook: Any, world: World, proxy: FaultProxy
) -> None:
    fault = proxy.add(Fault(code=401))
    with pytest.raises(Unauthorized) as caught:
        hook.get(PYTORCH_JOB, world.namespace, "job")
    assert fault.hits == 6
    assert str(caught.value) == (
        f"cannot get PyTorchJob {world.namespace}/job: {_server(proxy)} (Airflow connection "
        "cluster) rejects the credentials (401). The token or certificate in the connection "
        "may have expired: renew it."
    )


def _server(proxy: FaultProxy) -> str:
    """Its address as it is shown: the path is a key."""
    server = _config(proxy)["clusters"][0]["cluster"]["server"]
    return "/".join(server.split("/")[:3])


def _config(proxy: FaultProxy) -> Any:
    return yaml.safe_load(proxy.kubeconfig.read_text(encoding="utf-8"))


def test_no_error_tells_the_path_that_is_a_key(
    hook: Any, world: World, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_kftrain.hooks.operations.PATIENCE", 0.5)
    key = _config(proxy)["clusters"][0]["cluster"]["server"].split("/")[3]
    hook.get(PYTORCH_JOB, world.namespace, "job")
    for code in (401, 403, 404, 409, 410, 429, 500, 503, 504):
        fault = proxy.add(Fault(code=code))
        with pytest.raises(ClusterError) as caught:
            list(hook.list(PYTORCH_JOB, world.namespace))
        proxy.remove(fault)
        assert key not in repr(caught.value)
        assert key not in str(caught.value)
    proxy.away()
    with pytest.raises(Unreachable, match=f"{_server(proxy)} .* refuses connections") as refused:
        hook.get(PYTORCH_JOB, world.namespace, "job")
    assert key not in str(refused.value)


def test_a_server_that_says_nothing_is_given_up(
    hook: Any, world: World, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credentials, "ANSWER_SECONDS", 0.5)
    monkeypatch.setattr("airflow_kftrain.hooks.operations.PATIENCE", 1.0)
    hook.get(PYTORCH_JOB, world.namespace, "job")
    proxy.freeze()
    with pytest.raises(Unreachable, match="did not respond in time"):
        hook.get(PYTORCH_JOB, world.namespace, "job")
    proxy.thaw()
    assert hook.get(PYTORCH_JOB, world.namespace, "job") is None


def _watch(hook: Looped, world: World, seconds: float = 30) -> Any:
    version, items = hook.snapshot(PYTORCH_JOB, world.namespace)
    hook.run(items.aclose())
    return hook.watch(PYTORCH_JOB, world.namespace, "", version, seconds)


def _once_watched(proxy: FaultProxy, work: Callable[[], Any]) -> threading.Thread:
    """Does `work` when a watch is open; again until `work` says that it has hit one, if it says
    so."""

    def wait() -> None:
        eventually(lambda: proxy.calls["watch", "pytorchjobs"])
        eventually(lambda: work() != 0)

    return meanwhile(wait)


def test_a_watch_that_is_cut_is_an_error_of_ours(
    hook: Looped, world: World, proxy: FaultProxy
) -> None:
    cut = _once_watched(proxy, proxy.cut)
    with pytest.raises(Unreachable), contextlib.closing(_watch(hook, world)) as events:
        list(events)
    cut.join()


def test_a_watch_that_expires_says_so(hook: Looped, world: World, proxy: FaultProxy) -> None:
    expire = _once_watched(proxy, proxy.expire)
    with pytest.raises(Expired), contextlib.closing(_watch(hook, world)) as events:
        list(events)
    expire.join()
    proxy.add(Fault(verb="watch", code=410))
    with pytest.raises(Expired):
        next(_watch(hook, world))


def test_a_watch_of_a_server_that_vanished_is_overdue(
    hook: Looped, world: World, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credentials, "WATCH_GRACE", 0.5)
    freeze = _once_watched(proxy, proxy.freeze)
    with (
        pytest.raises(Unreachable, match="did not respond in time"),
        contextlib.closing(_watch(hook, world, 1)) as events,
    ):
        list(events)
    freeze.join()


def test_a_watch_renews_credentials(hook: Looped, world: World, proxy: FaultProxy) -> None:
    fault = proxy.add(Fault(verb="watch", code=401, times=1))
    assert {kind for kind, _ in _watch(hook, world, 1)} <= {"BOOKMARK"}
    assert fault.hits == 1


def test_a_renewal_leaves_what_is_under_way_alone(
    hook: Looped, world: World, proxy: FaultProxy
) -> None:
    """The watch continues with the old client, which closes when nobody uses it any more."""
    with contextlib.closing(_watch(hook, world)) as events:
        create = meanwhile(lambda: world.create(still_job()))
        assert next(events)[0] == "ADDED"
        create.join()
        proxy.add(Fault(verb="get", code=401, times=1))
        assert hook.get(PYTORCH_JOB, world.namespace, "none") is None
        other = meanwhile(lambda: world.create(still_job("other")))
        while next(events)[1]["metadata"]["name"] != "other":
            pass
        other.join()


def test_a_snapshot_that_is_forgotten_halfway_is_expired(
    hook: Looped, world: World, proxy: FaultProxy
) -> None:
    for number in range(55):
        world.create(still_job(f"job-{number:02}"))
    _, items = hook.snapshot(PYTORCH_JOB, world.namespace)
    proxy.add(Fault(verb="list", code=410))

    async def all_of_them() -> list[Manifest]:
        return [item async for item in items]

    with pytest.raises(Expired):
        hook.run(all_of_them())
