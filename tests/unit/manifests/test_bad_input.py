"""Every mistake is rejected before anything is created. The error has the author's own name of the
field, the value, and what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from airflow_kftrain import InvalidSpec, build_manifest
from airflow_kftrain.manifests import check_given

from .mistakes import SECRET, Wrong
from .mistakes_in_manifests import mistakes_in_manifests
from .mistakes_in_specs import mistakes_in_specs

MISTAKES = [*mistakes_in_specs(), *mistakes_in_manifests()]


def refusal(run: Callable[[], object]) -> InvalidSpec:
    with pytest.raises(InvalidSpec) as caught:
        run()
    return caught.value


@pytest.mark.parametrize("wrong", MISTAKES, ids=lambda wrong: wrong.what)
def test_a_mistake_is_refused_in_the_authors_words(wrong: Wrong) -> None:
    error = refusal(lambda: build_manifest(wrong.spec(**wrong.given)))
    at_parse = refusal(lambda: check_given(wrong.spec, wrong.given))
    assert list(faults(wrong, error, str(at_parse))) == []


def faults(wrong: Wrong, error: InvalidSpec, at_parse: str) -> Iterator[str]:
    text = str(error)
    if error.field != wrong.field or not text.startswith(f"{wrong.field}: "):
        yield f"the field is {error.field!r}: {text}"
    yield from (f"{piece!r} is not said: {text}" for piece in wrong.says if piece not in text)
    if not text.endswith((".", "?")) or "\n" in text or len(text) >= 400:
        yield f"is no short sentence: {text}"
    if at_parse != text:
        yield f"in other words at parse: {at_parse}"
    if any(SECRET in str(each) for each in with_what_led_to_it(error)):
        yield "the secret is told"


def with_what_led_to_it(error: BaseException | None) -> Iterator[BaseException]:
    """The errors that a traceback would show."""
    while error is not None:
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def test_mistakes_are_told_apart_and_some_hold_a_secret() -> None:
    assert len({(wrong.what, wrong.spec, wrong.field) for wrong in MISTAKES}) == len(MISTAKES)
    assert sum(SECRET in repr(wrong.given) for wrong in MISTAKES) >= 15
