"""Elastic: the number of nodes, written in one of four ways."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_kftrain import Elastic
from airflow_kftrain.specs.elastic import check_elastic
from airflow_kftrain.specs.later import LATER


@pytest.mark.parametrize(
    ("elastic", "least", "most"),
    [
        (Elastic(nodes=4), 4, 4),
        (Elastic(nodes="4"), 4, 4),
        (Elastic(nodes="1:4"), 1, 4),
        (Elastic(nodes=" 2 : 4 "), 2, 4),
        (Elastic(nodes="1:1"), 1, 1),
        (Elastic(min_nodes=2, max_nodes="8"), 2, 8),
        (Elastic(nodes=LATER), LATER, LATER),
        (Elastic(min_nodes=4, max_nodes=LATER), 4, LATER),
    ],
)
def test_the_number_of_nodes_becomes_least_and_most(elastic: Any, least: Any, most: Any) -> None:
    checked = check_elastic("elastic", elastic)
    assert (checked.nodes, checked.min_nodes, checked.max_nodes) == (None, least, most)


@pytest.mark.parametrize(("given", "processes"), [(2, 2), ("2", 2), ("gpu", "gpu"), (LATER, LATER)])
def test_processes_are_a_number_or_a_word_of_torchrun(given: Any, processes: Any) -> None:
    checked = check_elastic("elastic", Elastic(nodes=2, nproc_per_node=given))
    assert checked.nproc_per_node == processes


def test_durations_become_seconds_and_settings_become_text() -> None:
    checked = check_elastic("elastic", Elastic(nodes=2, rdzv_conf={"last_call_timeout": 30}))
    assert (checked.join_timeout, checked.read_timeout) == (900, 900)
    assert checked.rdzv_conf == {"last_call_timeout": "30"}
