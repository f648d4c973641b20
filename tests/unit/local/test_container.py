from __future__ import annotations

import pytest

from kftrain_local.agent.container import events_of
from kftrain_local.agent.environment import CannotStart


@pytest.mark.parametrize(
    ("reason", "events"),
    [
        ("CreateContainerConfigError", [("Warning", "Failed", "Error: it")]),
        (
            "InvalidImageName",
            [("Warning", "InspectFailed", "it"), ("Warning", "Failed", "Error: InvalidImageName")],
        ),
        (
            "ImagePullBackOff",
            [("Normal", "BackOff", "it"), ("Warning", "Failed", "Error: ImagePullBackOff")],
        ),
    ],
)
def test_events_of_what_cannot_start(reason: str, events: list[tuple[str, str, str]]) -> None:
    assert events_of(CannotStart("it", reason)) == events
