"""Whatever is wrong is refused before anything is created, in the author's own words: the field as
he wrote it, the value, and what to do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from airflow_kftrain import InvalidSpec, build_manifest
from airflow_kftrain.manifests import check_given

from .mistakes import SECRET, Wrong
from .mistakes_in_manifests import mistakes_in_manifests
from .mistakes_in_specs import mistakes_in_specs

MISTAKES = [*mistakes_in_specs(), *mistakes_in_manifests()]
every_mistake = pytest.mark.parametrize("wrong", MISTAKES, ids=lambda wrong: wrong.what)


def refusal(wrong: Wrong) -> InvalidSpec:
    with pytest.raises(InvalidSpec) as caught:
        build_manifest(wrong.spec(**wrong.given))
    return caught.value


@every_mistake
def test_the_field_is_named_as_the_author_wrote_it(wrong: Wrong) -> None:
    error = refusal(wrong)
    assert error.field == wrong.field
    assert str(error).startswith(f"{wrong.field}: ")


@every_mistake
def test_the_words_say_what_is_wrong_and_what_to_do(wrong: Wrong) -> None:
    text = str(refusal(wrong))
    assert [piece for piece in wrong.says if piece not in text] == [], text
    assert text.endswith((".", "?"))
    assert "\n" not in text
    assert len(text) < 400


def test_no_secret_is_told_nor_left_in_a_traceback() -> None:
    told = [
        wrong.what
        for wrong in MISTAKES
        for error in with_what_led_to_it(refusal(wrong))
        if SECRET in str(error)
    ]
    assert told == []
    assert sum(SECRET in repr(wrong.given) for wrong in MISTAKES) >= 15


def with_what_led_to_it(error: BaseException | None) -> Iterator[BaseException]:
    """The errors that a traceback would show."""
    while error is not None:
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


@every_mistake
def test_it_is_found_at_parse_in_the_same_words(wrong: Wrong) -> None:
    with pytest.raises(InvalidSpec) as caught:
        check_given(wrong.spec, wrong.given)
    assert str(caught.value) == str(refusal(wrong))


def test_mistakes_are_told_apart() -> None:
    assert len(MISTAKES) >= 90
    assert len({(wrong.what, wrong.spec, wrong.field) for wrong in MISTAKES}) == len(MISTAKES)
