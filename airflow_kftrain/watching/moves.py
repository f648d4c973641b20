"""Finds a job whose connection was edited after it was submitted.

A different fingerprint does not prove that the cluster is another one: the address may have
changed, or the certificate authority was renewed. The uid of a job is proof: the cluster that has
it is the cluster of its order, and of all orders with the same fingerprint.
"""

from __future__ import annotations

from airflow_kftrain.errors import KfTrainError, OtherCluster
from airflow_kftrain.hooks.training_job_async import AsyncTrainingJobHook
from airflow_kftrain.messages import WatchOrder
from airflow_kftrain.ownership import read_claim


async def located(order: WatchOrder) -> WatchOrder:
    """The order with the cluster to watch. Raises nothing: the feed reports other problems."""
    if not order.cluster:
        return order
    hook = AsyncTrainingJobHook(order.connection, order.cluster)
    try:
        await hook.connect()
    except OtherCluster:
        return await _relocated(hook, order)
    except KfTrainError:
        pass
    return order


async def _relocated(hook: AsyncTrainingJobHook, order: WatchOrder) -> WatchOrder:
    if order.job.uid:
        await follow(hook, order)
        return order
    # A job that is known only by its name is looked for where the connection leads.
    other = await hook.elsewhere()
    return order if other is None else order._replace(cluster=other.cluster)


async def follow(hook: AsyncTrainingJobHook, order: WatchOrder) -> bool:
    """Looks for the job on the cluster to which the connection leads now. If it is there, this hook
    and all others for its cluster continue there. Returns whether it is."""
    if not (hook.cluster and order.job.uid):
        return False
    try:
        other = await hook.elsewhere()
        if other is None:
            return False
        job = await other.get(order.kind, order.job.namespace, order.job.name)
        if read_claim(job).uid != order.job.uid:
            return False
        await hook.move(other)
    except KfTrainError:
        return False
    return True
