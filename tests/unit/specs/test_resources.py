"""Resources: requests and limits, written once."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_kftrain import Resources
from airflow_kftrain.specs.later import LATER
from airflow_kftrain.specs.resources import is_device, requirements, without_devices


@pytest.mark.parametrize(
    ("given", "requests", "limits"),
    [
        (Resources(cpu=2), {"cpu": "2"}, {"cpu": "2"}),
        (Resources(cpu=(0.5, 2)), {"cpu": "0.5"}, {"cpu": "2"}),
        (Resources(memory=("1Gi", None)), {"memory": "1Gi"}, {}),
        (Resources(memory=(None, "1Gi")), {}, {"memory": "1Gi"}),
        (Resources(memory=["1Gi", "2Gi"]), {"memory": "1Gi"}, {"memory": "2Gi"}),  # type: ignore[arg-type]
        (Resources(gpu=1), {"nvidia.com/gpu": "1"}, {"nvidia.com/gpu": "1"}),
        (Resources(gpu=0), {"nvidia.com/gpu": "0"}, {"nvidia.com/gpu": "0"}),
        (
            Resources(ephemeral_storage="1Gi"),
            {"ephemeral-storage": "1Gi"},
            {"ephemeral-storage": "1Gi"},
        ),
        (Resources(extended={"amd.com/gpu": 2}), {"amd.com/gpu": "2"}, {"amd.com/gpu": "2"}),
        (
            Resources(extended={"hugepages-2Mi": "4Mi"}),
            {"hugepages-2Mi": "4Mi"},
            {"hugepages-2Mi": "4Mi"},
        ),
        (Resources(), {}, {}),
    ],
)
def test_one_amount_is_both_and_a_pair_is_request_and_limit(
    given: Resources, requests: dict[str, str], limits: dict[str, str]
) -> None:
    written = {"requests": requests, "limits": limits}
    assert requirements("r", given) == {part: item for part, item in written.items() if item}


def test_a_dict_is_taken_as_a_container_has_it() -> None:
    given = {"requests": {"cpu": 1}, "limits": {"memory": "1Gi"}, "claims": [{"name": "gpu"}]}
    assert requirements("r", given) == {
        "requests": {"cpu": "1"},
        "limits": {"memory": "1Gi"},
        "claims": [{"name": "gpu"}],
    }


@pytest.mark.parametrize("amount", ["0", "1Mi", "1048576", "1048576000m", LATER])
def test_no_memory_and_a_mebibyte_can_be_meant(amount: Any) -> None:
    assert requirements("r", {"limits": {"memory": amount}}) == {"limits": {"memory": amount}}


def test_a_device_may_be_limited_without_a_request() -> None:
    given = {"limits": {"nvidia.com/gpu": 1}}
    assert requirements("r", given) == {"limits": {"nvidia.com/gpu": "1"}}


@pytest.mark.parametrize(
    "given",
    [
        LATER,
        {"requests": LATER, "limits": {"cpu": 1}},
        {"requests": {"cpu": 2}, "limits": LATER},
        {"requests": {"cpu": 2}, "limits": {"cpu": LATER}},
        {"requests": {"nvidia.com/gpu": LATER}, "limits": {"nvidia.com/gpu": 1}},
        Resources(cpu=LATER),
        Resources(cpu=(LATER, 1)),
        Resources(extended=LATER),
        Resources(extended={"amd.com/gpu": LATER}),
    ],
)
def test_what_is_not_known_yet_is_not_compared(given: Any) -> None:
    requirements("r", given)


def test_a_container_that_only_starts_others_gets_no_devices() -> None:
    given = {
        "requests": {"cpu": "1", "nvidia.com/gpu": "1"},
        "limits": {"nvidia.com/gpu": "1"},
        "claims": [{"name": "gpu"}],
    }
    assert without_devices(given) == {"requests": {"cpu": "1"}, "claims": [{"name": "gpu"}]}
    assert without_devices(LATER) is LATER


@pytest.mark.parametrize(
    ("name", "device"),
    [("nvidia.com/gpu", True), ("rdma/hca", True), ("cpu", False), ("hugepages-2Mi", False)],
)
def test_devices_have_a_domain(name: str, device: bool) -> None:
    assert is_device(name) is device
