"""The store of the embedded cluster, in cases that no client can see."""

from __future__ import annotations

from kftrain_local.server.resources import SECRETS
from kftrain_local.server.selectors import everything
from kftrain_local.server.store import Key, Store


def test_a_watch_that_nobody_reads_is_ended_and_keeps_nothing() -> None:
    store = Store(history=10)
    secret = {"metadata": {"name": "s"}}
    store.add(SECRETS, store.create(SECRETS, "default", secret))
    watch = store.watch(SECRETS, "", everything, 0)
    key = Key(SECRETS, "default", "s")
    for number in range(10_100):
        store.keep(key, {**store.get(key), "data": {"number": str(number)}})
    assert watch.is_behind
    assert watch.so_far() == []
