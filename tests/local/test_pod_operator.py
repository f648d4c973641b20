"""The trigger of Airflow's own unchanged KubernetesPodOperator on the embedded cluster."""

from __future__ import annotations

import asyncio

import pytest
from airflow.providers.cncf.kubernetes.triggers.pod import KubernetesPodTrigger
from airflow.sdk import timezone

from tests.cluster.targets import LocalTarget
from tests.cluster.world import World, eventually


def test_a_trigger_that_is_killed_deletes_the_pod(
    world: World, target: LocalTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the triggerer does if a deferred task is marked failed or cleared."""
    for name, value in target.airflow().items():
        monkeypatch.setenv(name, value)
    pod = world.pod("p", "sleep", "600")
    pod.phase("Running")
    trigger = KubernetesPodTrigger(
        pod_name=pod.name,
        pod_namespace=world.namespace,
        trigger_start_time=timezone.utcnow(),
        base_container_name="main",
        kubernetes_conn_id="kubernetes_default",
        poll_interval=0.1,
    )

    async def kill_it() -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(anext(trigger.run()), 1)
        await trigger.on_kill()

    asyncio.run(kill_it())
    eventually(pod.is_gone, lambda: pod.status)
