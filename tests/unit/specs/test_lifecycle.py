from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from airflow_kftrain import InvalidSpec
from airflow_kftrain.specs.later import LATER, mask
from airflow_kftrain.specs.lifecycle import (
    BYTES_A_MINUTE,
    PLACEHOLDERS,
    Lifecycle,
    Links,
    Logs,
    check_lifecycle,
    check_link,
    check_links,
    check_logs,
)

CHECKS: list[tuple[Any, Any]] = [
    (check_lifecycle, Lifecycle),
    (check_logs, Logs),
    (check_links, Links),
]


def refused(check: Any, value: Any) -> InvalidSpec:
    with pytest.raises(InvalidSpec) as error:
        check("given", value)
    return error.value


def test_the_defaults_are_fine() -> None:
    lifecycle = Lifecycle(skip_on_exit_code=(), fail_on_exit_code=())
    assert check_lifecycle("lifecycle", Lifecycle()) == lifecycle
    assert check_logs("logs", Logs()) == Logs("leader", "off", BYTES_A_MINUTE)
    assert check_links("links", Links()) == Links()


@pytest.mark.parametrize(("check", "noun"), CHECKS)
def test_what_is_known_later_passes(check: Any, noun: Any) -> None:
    assert check("given", LATER) is LATER
    later = noun(*(LATER for _ in noun._fields))
    assert check("given", later) == later


@pytest.mark.parametrize(("check", "noun"), CHECKS)
def test_another_noun_is_refused(check: Any, noun: Any) -> None:
    error = refused(check, {"on_finish": "keep"})
    assert (error.field, error.problem) == ("given", f"must be {noun.__name__}(...)")


@pytest.mark.parametrize("on_finish", ["delete_on_success", "delete", "keep"])
def test_what_may_become_of_a_job_at_its_end(on_finish: str) -> None:
    assert check_lifecycle("lifecycle", Lifecycle(on_finish)).on_finish == on_finish


@pytest.mark.parametrize(
    ("given", "codes"),
    [
        (None, ()),
        ((), ()),
        (99, (99,)),
        ("99", (99,)),
        ([1, "255"], (1, 255)),
        ({7}, (7,)),
        (frozenset({7}), (7,)),
        ((LATER, 3), (LATER, 3)),
        (LATER, LATER),
    ],
)
def test_exit_codes_become_a_tuple_of_numbers(given: Any, codes: Any) -> None:
    checked = check_lifecycle("lifecycle", Lifecycle(skip_on_exit_code=given))
    assert checked.skip_on_exit_code == codes


def test_text_from_a_template_is_read() -> None:
    given: Any = Lifecycle(reattach="false", fail_fast="True")  # type: ignore[arg-type]
    checked = check_lifecycle("lifecycle", given)
    assert (checked.reattach, checked.fail_fast) == (False, True)
    assert check_logs("logs", Logs(bytes_a_minute="2048")).bytes_a_minute == 2048


@pytest.mark.parametrize(
    ("check", "value", "field"),
    [
        (check_lifecycle, Lifecycle(on_finish="delet"), "given.on_finish"),
        (check_lifecycle, Lifecycle(on_finish=None), "given.on_finish"),  # type: ignore[arg-type]
        (check_lifecycle, Lifecycle(reattach="maybe"), "given.reattach"),  # type: ignore[arg-type]
        (check_lifecycle, Lifecycle(skip_on_exit_code=0), "given.skip_on_exit_code"),
        (check_lifecycle, Lifecycle(skip_on_exit_code=256), "given.skip_on_exit_code"),
        (check_lifecycle, Lifecycle(skip_on_exit_code=[5, 0]), "given.skip_on_exit_code"),
        (check_lifecycle, Lifecycle(skip_on_exit_code="many"), "given.skip_on_exit_code"),
        (check_lifecycle, Lifecycle(fail_on_exit_code=0), "given.fail_on_exit_code"),
        (check_lifecycle, Lifecycle(system_retries=-1), "given.system_retries"),
        (check_lifecycle, Lifecycle(system_retries=101), "given.system_retries"),
        (check_lifecycle, Lifecycle(system_retries=None), "given.system_retries"),  # type: ignore[arg-type]
        (check_lifecycle, Lifecycle(grace=timedelta(0)), "given.grace"),
        (check_lifecycle, Lifecycle(grace=timedelta(seconds=0.5)), "given.grace"),
        (
            check_lifecycle,
            Lifecycle(skip_on_exit_code=[3, 4], fail_on_exit_code=4),
            "given.fail_on_exit_code",
        ),
        (check_logs, Logs(waiting="some"), "given.waiting"),
        (check_logs, Logs(progress="much"), "given.progress"),  # type: ignore[arg-type]
        (check_logs, Logs(deferred="on"), "given.deferred"),
        (check_logs, Logs(bytes_a_minute=0), "given.bytes_a_minute"),
        (check_links, Links(dashboard="ftp://x"), "given.dashboard"),
    ],
)
def test_a_wrong_value_is_refused_by_name(check: Any, value: Any, field: str) -> None:
    assert refused(check, value).field == field


# ----- URL templates


@pytest.mark.parametrize(
    "template",
    [
        "",
        "https://logs.example.com",
        "http://logs/{namespace}/{job}?from={start}&to={finish}",
        "https://logs/%7B{pod}%7D",
        "https://logs/" + "".join(f"{{{name}}}" for name in PLACEHOLDERS),
    ],
)
def test_a_url_template_stays_as_it_is(template: str) -> None:
    assert check_link("links.dashboard", template) == template


def test_a_jinja_template_is_checked_once_it_is_rendered() -> None:
    links = mask(Links(dashboard="{{ var.value.grafana }}/{job}"))
    assert check_links("links", links).dashboard is LATER


@pytest.mark.parametrize(
    ("template", "text"),
    [
        (
            "https://logs/{nod}",
            "links.dashboard: has an unknown placeholder, {nod}, got "
            "'https://logs/{nod}'. Use {namespace}, {job}, {pod}, {container}, {role}, "
            "{index}, {node}, {container_id}, {dag_id}, {task_id}, {run_id}, {map_index}, "
            "{try_number}, {identity}, {start}, {finish}, {start_time}, {finish_time}, without a "
            "format.",
        ),
        (
            'https://logs?left={"a":1',
            "links.dashboard: has braces that are not a placeholder, got "
            "'https://logs?left={\"a\":1'. Write %7B and %7D for braces that are part of the URL.",
        ),
        (
            "javascript:alert(1)",
            "links.dashboard: must start with http:// or https://, since it becomes a button, got "
            "'javascript:alert(1)'.",
        ),
    ],
)
def test_an_error_says_what_to_write(template: str, text: str) -> None:
    with pytest.raises(InvalidSpec) as error:
        check_link("links.dashboard", template)
    assert str(error.value) == text


@pytest.mark.parametrize(
    "template",
    [
        "https://logs/{}",
        "https://logs/{0}",
        "https://logs/{job.__class__}",
        "https://logs/{job[0]}",
        "https://logs/{job!r}",
        "https://logs/{start:>20}",
        "https://logs/{job:{secret}}",
    ],
)
def test_only_bare_names_are_filled_in(template: str) -> None:
    assert "unknown placeholder" in refused(check_link, template).problem


@pytest.mark.parametrize("template", [3, ["https://x"], None])
def test_a_url_is_text(template: Any) -> None:
    assert refused(check_link, template).field == "given"
