import asyncio
import contextlib
from itertools import pairwise

import pytest

from airflow_kftrain.errors import ClusterError, Expired, Forbidden, NotServed, Unreachable
from airflow_kftrain.watching import streams
from airflow_kftrain.watching.streams import Stream
from tests.unit.watching.virtual_time import run

AWAY = Unreachable("list jobs", "nobody answers")
NO_RIGHT = Forbidden("watch jobs", "no right")


@pytest.fixture(autouse=True)
def no_luck(monkeypatch):
    monkeypatch.setattr(streams.random, "uniform", lambda low, high: 1.0)


def job(name, version):
    return {"metadata": {"name": name, "resourceVersion": str(version)}}


class World:
    """Answers lists and watches as its script says. It is the sink, too: `seen` contains everything
    that happens, with its time."""

    def __init__(self, lists=(), watches=()):
        self.lists = list(lists)
        self.watches = list(watches)
        self.seen = []

    def see(self, *what):
        self.seen.append((asyncio.get_running_loop().time(), *what))

    async def snapshot(self):
        self.see("list")
        answer = self.lists.pop(0) if len(self.lists) > 1 else self.lists[0]
        if isinstance(answer, Exception):
            raise answer
        version, names = answer

        async def items():
            for name in names:
                yield job(name, version)

        return str(version), items()

    async def watch(self, version, seconds):
        self.see("watch", version)
        script = self.watches.pop(0) if self.watches else ()
        if isinstance(script, Exception):
            raise script
        for event in script:
            if isinstance(event, Exception):
                raise event
            yield event
        await asyncio.sleep(seconds)

    def broke(self, error):
        self.see("broke", error)

    def begin(self):
        self.see("begin")

    def put(self, item):
        self.see("put", item["metadata"]["name"])

    def drop(self, item):
        self.see("drop", item["metadata"]["name"])

    def complete(self):
        self.see("complete")

    def changed(self):
        self.see("changed")

    def words(self, *kinds):
        return [what for _, *what in self.seen if what[0] in kinds]

    def times(self, kind):
        return [time for time, what, *_ in self.seen if what == kind]


def follow(world, seconds, poll_seconds=60.0):
    async def work():
        stream = Stream(world, world, lambda: poll_seconds)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(stream.run(), seconds)
        return stream

    return run(work())


def test_what_is_there_is_told_first_and_then_what_happens():
    events = [("ADDED", job("b", 8)), ("MODIFIED", job("a", 9)), ("DELETED", job("b", 10))]
    world = World([(7, ["a"])], [events])
    stream = follow(world, 10)
    assert [what for _, *what in world.seen] == [
        ["list"],
        ["begin"],
        ["put", "a"],
        ["complete"],
        ["changed"],
        ["watch", "7"],
        ["put", "b"],
        ["put", "a"],
        ["drop", "b"],
    ]
    assert stream.synced
    assert stream.problem is None


def test_a_watch_goes_on_from_the_last_version_also_of_a_bookmark():
    world = World([(7, [])], [[("ADDED", job("a", 8))], [("BOOKMARK", job("", 30))], []])
    follow(world, 3.5 * streams.WATCH_SECONDS)
    assert world.words("watch", "list") == [
        ["list"],
        *(["watch", version] for version in ("7", "8", "30", "30")),
    ]


def test_all_is_listed_anew_now_and_then():
    world = World([(7, []), (9, [])])
    follow(world, 2.5 * streams.LIST_AGAIN_SECONDS)
    assert len(world.times("list")) == 3


def test_few_requests_are_made_while_nothing_happens():
    world = World([(7, [])])
    follow(world, 6000)
    assert len(world.times("list")) + len(world.times("watch")) <= 60


def test_versions_that_are_forgotten_are_listed_anew():
    world = World([(7, ["a"]), (20, ["a", "b"])], [[Expired("watch", "too old")], []])
    follow(world, 10)
    assert world.words("list", "watch", "put") == [
        ["list"],
        ["put", "a"],
        ["watch", "7"],
        ["list"],
        ["put", "a"],
        ["put", "b"],
        ["watch", "20"],
    ]
    assert world.words("changed") == [["changed"]]


def test_a_watch_that_breaks_goes_on_where_it_stood():
    world = World([(7, [])], [[("ADDED", job("a", 8)), AWAY], []])
    follow(world, 10)
    assert world.words("list", "watch") == [["list"], ["watch", "7"], ["watch", "8"]]


def test_a_server_that_was_away_may_be_another_one():
    """It may have other versions: a watch from a future version is silent for ever."""
    world = World([(7, []), AWAY, (3, [])], [AWAY, AWAY, []])
    follow(world, 20)
    assert world.words("list", "watch") == [
        *(["list"], ["watch", "7"], ["watch", "7"]),
        *(["list"], ["list"], ["watch", "3"]),
    ]


def test_a_server_that_is_away_is_asked_less_and_less_often():
    world = World([AWAY])
    follow(world, 300)
    pauses = [after - before for before, after in pairwise(world.times("list"))]
    assert pauses[:6] == [0.5, 1, 2, 4, 8, 16]
    assert set(pauses[6:]) == {30}


def test_only_trouble_that_lasts_is_told_once_and_its_end():
    world = World([AWAY, AWAY, AWAY, AWAY, AWAY, AWAY, AWAY, (7, [])])
    stream = follow(world, 100)
    (told, over, synced) = world.times("changed")
    assert told >= streams.TOLD_AFTER_SECONDS
    assert over == synced > told
    assert stream.problem is None
    world = World([AWAY, (7, [])])
    follow(world, 100)
    assert len(world.times("changed")) == 1


def test_a_server_that_says_when_to_come_back_is_obeyed():
    busy = ClusterError("list jobs", "too much to do", code=429)
    busy.retry_after = 40.0
    world = World([busy, (7, [])])
    follow(world, 100)
    assert world.times("list") == [0, 40]
    assert world.times("changed") == [0, 40, 40]  # long enough to be reported


def test_a_missing_right_to_watch_makes_it_list():
    world = World([(7, [])], [NO_RIGHT] * 100)
    stream = follow(world, 290, poll_seconds=60.0)
    assert world.times("list") == [0, 60, 120, 180, 240]
    assert stream.polls is NO_RIGHT
    assert stream.problem is None
    assert len(world.times("changed")) == 2  # synced, and that


def test_a_right_to_watch_that_comes_back_ends_the_polling():
    world = World([(7, [])], [NO_RIGHT, NO_RIGHT, []])
    stream = follow(world, 140, poll_seconds=60.0)
    assert stream.polls is None
    assert stream.shut is None
    assert world.times("list") == [0, 60, 120]
    assert len(world.times("changed")) == 3  # it is synced, it polls, and it no longer does


@pytest.mark.parametrize("error", [NO_RIGHT, NotServed("list jobs", "no such kind")])
def test_what_does_not_heal_by_itself_is_told_at_once_and_rarely_asked_again(error):
    world = World([error])
    stream = follow(world, 1000)
    assert stream.problem is not None
    assert stream.problem.error is error
    assert stream.problem.is_final
    assert not stream.synced
    assert world.times("changed") == [0]
    assert len(world.times("list")) == 4


def test_a_server_that_wants_to_be_left_alone_for_ever_is_not():
    busy = ClusterError("list jobs", "too much to do", code=429)
    busy.retry_after = 1e9
    world = World([busy, (7, [])])
    follow(world, 2 * streams.LIST_AGAIN_SECONDS)
    assert len(world.times("list")) == 2


def test_a_watch_that_shall_come_back_later_does_not_come_sooner(monkeypatch):
    monkeypatch.setattr(streams.random, "uniform", lambda low, high: low)
    busy = ClusterError("watch jobs", "too much to do", code=429)
    busy.retry_after = 300.0
    world = World([(7, [])], [busy, []])
    follow(world, 400)
    assert world.times("watch")[:2] == [0, 300]


def test_a_fault_of_ours_does_not_end_it(caplog):
    async def snapshot():
        world.see("list")
        if len(world.times("list")) == 1:
            raise TypeError("never thought of")
        return await World.snapshot(world)

    world = World([(8, ["a"])])
    world.snapshot = snapshot
    stream = follow(world, 50)
    assert world.words("put") == [["put", "a"]]
    assert stream.synced


def test_an_object_that_cannot_be_taken_does_not_hide_the_others(caplog):
    def put(item):
        if item["metadata"]["name"] == "bad":
            raise TypeError("never thought of")
        world.see("put", item["metadata"]["name"])

    world = World([(7, ["bad", "a"])], [[("MODIFIED", job("bad", 8)), ("ADDED", job("b", 9))]])
    world.put = put
    stream = follow(world, 100)
    assert world.words("put", "complete", "list") == [
        ["list"],
        ["put", "a"],
        ["complete"],
        ["put", "b"],
    ]
    assert stream.synced
    assert stream.problem is None
    assert caplog.text.count("bad is skipped") == 2


@pytest.mark.parametrize(
    "error",
    [Expired("watch", "too old"), ClusterError("watch", "broken", code=500), AWAY],
    ids=["expired", "failed", "nonsense"],
)
def test_a_watch_that_never_works_does_not_make_it_list_all_the_time(error):
    world = World([(7, ["a"])], [error] * 10000)
    stream = follow(world, 3600)
    assert 60 <= len(world.times("list")) <= 150
    assert len(world.times("watch")) <= 150
    assert world.words("broke") == [["broke", error]] * len(world.times("watch"))
    assert stream.problem is None  # lists succeed


def test_a_watch_that_works_again_is_forgiven():
    world = World([(7, [])], [*[Expired("watch", "too old")] * 8, [], Expired("watch", "old"), []])
    follow(world, 400)
    *_, held, again = world.times("list")
    assert again - held == pytest.approx(streams.WATCH_SECONDS + 0.5)


def test_a_watch_that_ends_at_once_is_not_opened_again_and_again():
    world = World([(7, [])])

    async def watch(version, seconds):
        world.see("watch", version)
        return
        yield

    world.watch = watch
    follow(world, 600)
    assert len(world.times("watch")) <= 30
