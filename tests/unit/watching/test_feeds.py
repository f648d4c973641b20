"""What a feed makes of the objects that it receives. Nothing is called."""

import asyncio
from itertools import product

import pytest

from airflow_kftrain.errors import Forbidden
from airflow_kftrain.job_state import Phase
from airflow_kftrain.kinds import JobReference
from airflow_kftrain.manifests.identity import INSTANCE_LABEL
from airflow_kftrain.messages import WatchOrder
from airflow_kftrain.monitoring.failures import LogKey
from airflow_kftrain.watching import feeds, pods
from airflow_kftrain.watching.feeds import Feed, FeedKey, Hub, Subscription, hub_of
from airflow_kftrain.watching.streams import Problem
from tests.unit.monitoring.samples import after, at, container, ended
from tests.unit.watching.virtual_time import run

KEY = FeedKey("kubeflow.org/v1", "PyTorchJob", "ml", "here")


@pytest.fixture(autouse=True)
def no_logs(monkeypatch):
    """No logs are read, since there is no cluster."""

    async def read_tail(*_):
        return "the end"

    monkeypatch.setattr(feeds, "read_tail", read_tail)


def in_a_feed(work):
    """Runs the coroutine function with a feed that is not running, and with a subscription to job
    a."""

    async def prepared():
        feed = Feed(Hub(None), KEY)
        one = Subscription(feed, "a", "uid-a", 60.0)
        await work(feed, one)

    run(prepared())


def job(name="a", uid="uid-a", version="7", condition=None, policy="Never"):
    said = [{"type": condition, "status": "True", "reason": condition}] if condition else []
    return {
        "metadata": {"name": name, "uid": uid, "resourceVersion": version},
        "spec": {"pytorchReplicaSpecs": {"Master": {"restartPolicy": policy}}},
        "status": {"conditions": said},
    }


def pod(name="a-worker-0", of="a", phase="Failed", *statuses):
    labels = {INSTANCE_LABEL: "here", "training.kubeflow.org/job-name": of}
    labels |= {"training.kubeflow.org/replica-type": "worker"}
    metadata = {"name": name, "labels": labels, "creationTimestamp": at(0)}
    return {
        "metadata": metadata,
        "status": {"phase": phase, "containerStatuses": list(statuses)},
    }


async def is_woken(subscription):
    """Whether it is woken, without waiting."""
    woken = subscription._is_due
    subscription._is_due = False
    return woken


def test_who_waits_is_woken_by_news_of_his_job_only():
    async def work(feed, one):
        feed.jobs.put(job(condition="Running"))
        assert await is_woken(one)
        assert one.state.phase is Phase.RUNNING
        feed.jobs.put(job(version="8", condition="Running"))
        assert not await is_woken(one)
        feed.jobs.put(job("b", "uid-b"))
        assert not await is_woken(one)
        feed.jobs.put(job(version="9", condition="Succeeded"))
        assert await is_woken(one)
        feed.jobs.put(job(uid="uid-other", version="10", condition="Succeeded"))
        assert await is_woken(one)

    in_a_feed(work)


def test_versions_may_start_anew():
    """For example those of a cluster that was restored from a backup."""

    async def work(feed, one):
        feed.jobs.put(job(version="1000", condition="Running"))
        feed.jobs.put(job(version="501", condition="Succeeded"))
        assert one.state.phase is Phase.SUCCEEDED

    in_a_feed(work)


@pytest.mark.parametrize(
    ("condition", "phase"), [("Succeeded", Phase.SUCCEEDED), ("Failed", Phase.FAILED)]
)
def test_the_last_words_of_a_job_that_is_deleted_count(condition, phase):
    async def work(feed, one):
        feed.jobs.put(job())
        feed.jobs.drop(job(condition=condition))
        assert one.state.phase is phase

    in_a_feed(work)


def test_a_job_that_is_deleted_on_the_way_is_not_known_any_more():
    async def work(feed, one):
        feed.jobs.put(job(condition="Running"))
        feed.jobs.drop(job(condition="Running"))
        assert await is_woken(one)
        assert one.state is None

    in_a_feed(work)


def test_a_job_that_a_new_list_does_not_have_is_not_known_any_more():
    async def work(feed, one):
        feed.jobs.put(job())
        await is_woken(one)
        feed.jobs.begin()
        feed.jobs.put(job("b", "uid-b"))
        feed.jobs.complete()
        assert one.state is None
        assert await is_woken(one)

    in_a_feed(work)


def test_another_job_of_that_name_is_not_his():
    async def work(feed, one):
        feed.jobs.put(job(uid="uid-other", condition="Succeeded"))
        assert one.state is None
        feed.jobs.drop(job(uid="uid-other", condition="Succeeded"))
        assert one.state is None

    in_a_feed(work)


def test_what_nobody_may_look_at_any_more_is_not_known():
    async def work(feed, one):
        feed.jobs.put(job(condition="Running"))
        feed.pods.put(pod(phase="Pending"))
        assert one.state is not None
        assert one.pods
        for is_final in (False, True):
            problem = Problem(Forbidden("list jobs", "no right"), 0.0, is_final)
            feed.jobs_stream.problem = feed.pods_stream.problem = problem
            assert (one.state is None) is is_final
            assert (one.pods == []) is is_final
        feed.jobs.drop(job(condition="Succeeded"))
        assert one.state.phase is Phase.SUCCEEDED

    in_a_feed(work)


def test_pods_in_trouble_are_known_by_their_job_also_before_anybody_waits():
    async def work(feed, one):
        feed.pods.put(pod(of="b", phase="Pending"))
        later = Subscription(feed, "b", "", 60.0)
        assert [each.name for each in later.pods] == ["a-worker-0"]
        feed.pods.drop(pod(of="b", phase="Pending"))
        assert later.pods == []
        assert later.pods_changed
        assert not one.pods_changed

    in_a_feed(work)


def test_nothing_is_kept_when_nobody_waits_any_more():
    async def work(feed, one):
        feed.jobs.put(job(condition="Failed"))
        feed.pods.put(pod("w", "a", "Failed", container(ended(3))))
        feed.remove(one)
        assert not feed.jobs.waiters
        assert feed.pods.of("a") == []
        assert feed.pods.memory_of("a").merged_with([]) == []

    in_a_feed(work)


def leave_unseen(feed):
    feed.jobs.begin()
    feed.jobs.complete()


@pytest.mark.parametrize(
    "end",
    [
        lambda feed: feed.jobs.put(job("b", "uid-b", condition="Failed")),
        lambda feed: feed.jobs.drop(job("b", "uid-b")),
        leave_unseen,
    ],
    ids=["ended", "deleted", "deleted unseen"],
)
def test_pods_of_jobs_that_are_over_are_not_kept(end):
    async def work(feed, _):
        feed.jobs.put(job("b", "uid-b"))
        feed.pods.put(pod("w", "b", "Failed", container(ended(3))))
        assert [each.name for each in feed.pods.of("b")] == ["w"]
        assert feed.pods.memory_of("b").merged_with([]) == []  # nobody waits for it
        end(feed)
        assert feed.pods.of("b") == []
        feed.jobs.put(job("b", "uid-b", condition="Failed"))
        feed.pods.put(pod("w", "b", "Failed", container(ended(4))))
        assert feed.pods.of("b") == []

    in_a_feed(work)


def test_pods_that_a_new_list_does_not_have_are_in_no_trouble():
    async def work(feed, one):
        feed.pods.put(pod("v", "a", "Pending"))
        feed.pods.put(pod("w", "a", "Pending"))
        await is_woken(one)
        feed.pods.begin()
        feed.pods.put(pod("w", "a", "Pending"))
        feed.pods.complete()
        assert [each.name for each in one.pods] == ["w"]
        assert await is_woken(one)

    in_a_feed(work)


def test_the_most_impatient_says_how_often_is_looked_as_long_as_somebody_waits():
    async def work(feed, one):
        another = Subscription(feed, "b", "", 5.0)
        assert feed.poll_seconds() == 5
        feed.remove(another)
        assert feed.poll_seconds() == 60
        feed.remove(one)
        assert feed.poll_seconds() == feeds.LONGEST_POLL

    in_a_feed(work)


def test_of_several_who_are_equally_impatient_the_last_counts_too():
    async def work(feed, _):
        hurried = [Subscription(feed, name, "", 5.0) for name in ("b", "c")]
        feed.remove(hurried[0])
        assert feed.poll_seconds() == 5
        feed.remove(hurried[1])
        assert feed.poll_seconds() == 60

    in_a_feed(work)


def test_a_failed_pod_is_remembered_as_long_as_somebody_waits():
    async def work(feed, one):
        feed.jobs.put(job(condition="Running"))
        feed.pods.put(pod("w", "a", "Failed", container(ended(3))))
        feed.pods.drop(pod("w", "a", "Failed", container(ended(3))))
        assert one.pods == []
        assert [each.name for each in one.memory.merged_with([])] == ["w"]
        await asyncio.sleep(1)
        assert one.memory.logs == {LogKey("w", after(0), "pytorch", after(60)): "the end"}

    in_a_feed(work)


NONSENSE = (None, 7, "x", [], {}, {"name": None}, {"name": ["a"]}, {"name": "a", "uid": 3})


@pytest.mark.parametrize(("metadata", "rest"), list(product(NONSENSE, (None, [], {"a": 1}, "x"))))
def test_nonsense_raises_nothing(metadata, rest):
    async def work(feed, _):
        item = {"metadata": metadata, "spec": rest, "status": rest}
        for sink in (feed.jobs, feed.pods):
            sink.begin()
            sink.put(item)
            sink.drop(item)
            sink.complete()

    in_a_feed(work)


@pytest.mark.parametrize(
    ("policy", "restarts"),
    [
        *(("Never", False), ("ExitCode", False), ("OnFailure", True), ("Always", True)),
        *((None, True), (["Never"], True)),
    ],
)
def test_jobs_whose_containers_restart_in_place_are_known(policy, restarts):
    async def work(feed, _):
        feed.jobs.put(job(policy=policy))
        assert feed.jobs.entries["a"].restarts is restarts

    in_a_feed(work)


def test_a_wait_ends_at_its_time_or_at_news():
    async def work(feed, one):
        loop = asyncio.get_running_loop()
        await one.wait(60.0)
        assert loop.time() == 60
        loop.call_later(5, one.wake)
        await one.wait(None)
        assert loop.time() == 65
        one.wake()
        await one.wait(60.0)
        assert loop.time() == 65

    in_a_feed(work)


def test_orders_of_one_airflow_kind_and_namespace_share_a_feed_and_others_do_not(monkeypatch):
    async def idle(self):
        await asyncio.Event().wait()

    monkeypatch.setattr(Feed, "run", idle)
    order = WatchOrder(JobReference("PyTorchJob", "ml", "a", "u"), "kubeflow.org/v1", None, "here")
    others = [
        order._replace(job=order.job._replace(name="b")),
        order._replace(job=order.job._replace(namespace="other")),
        order._replace(job=order.job._replace(kind="TFJob")),
        order._replace(instance="there"),
        order._replace(instance=""),
        order._replace(connection="other"),
    ]

    async def work():
        with feeds.subscribed(order) as one:
            same = []
            for other in others:
                with feeds.subscribed(other) as another:
                    same.append(another.feed is one.feed)
            assert same == [True, False, False, False, False, False]
            hub = hub_of(None)
            assert hub.is_busy
        await asyncio.sleep(feeds.LINGER_SECONDS + 1)
        assert not hub.is_busy
        assert hub_of(None) is not hub  # it would keep its loop in memory for ever

    run(work())


def test_who_comes_while_a_feed_ends_gets_one_that_lives(monkeypatch):
    async def end_slowly(self):
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(1)

    monkeypatch.setattr(Feed, "run", end_slowly)
    order = WatchOrder(JobReference("PyTorchJob", "ml", "a", "u"), "kubeflow.org/v1", None, "here")

    async def work():
        with feeds.subscribed(order):
            pass
        await asyncio.sleep(feeds.LINGER_SECONDS + 0.5)
        with feeds.subscribed(order) as one:
            await asyncio.sleep(2)
            assert not one.feed.task.done()
            assert hub_of(None) is one.feed.hub
        await asyncio.sleep(feeds.LINGER_SECONDS + 2)
        assert one.feed.task.done()
        assert not hub_of(None).is_busy

    run(work())


def test_a_fault_of_ours_does_not_end_the_looks_for_crashes(monkeypatch, caplog):
    async def nothing(self):
        await asyncio.Event().wait()

    monkeypatch.setattr(feeds.Stream, "run", nothing)

    async def work():
        feed = Hub(None).feed(KEY)
        looks = []

        async def look(wanted):
            looks.append(wanted)
            raise TypeError("never thought of")

        feed.pods._look = look
        Subscription(feed, "a", "uid-a", 60.0)
        feed.jobs.put(job(condition="Running", policy="OnFailure"))
        await asyncio.sleep(4 * pods.LOOK_SECONDS)
        assert not feed.task.done()
        assert len(looks) > 2
        feed.task.cancel()
        await asyncio.wait([feed.task])

    run(work())
    assert "Cannot check for crashes" in caplog.text
