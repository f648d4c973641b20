"""How a triggerer masks what the worker has masked."""

import pytest

from airflow_kftrain.kinds import JobReference
from airflow_kftrain.manifests.places import texts_by_path
from airflow_kftrain.messages import MaskedText, Outcome, WatchOrder
from airflow_kftrain.monitoring.decisions import Verdict
from airflow_kftrain.watching.masking import Mask, find_secrets, hidden_parts, mask_for

ORDER = WatchOrder(JobReference("PyTorchJob", "ml", "a", "u"), "kubeflow.org/v1")


def knowing(*secrets):
    mask = Mask(ORDER._replace(masked=(MaskedText(".a", "***"),)))
    mask._take(secrets)
    mask.is_known = True
    return mask


@pytest.mark.parametrize(
    ("shown", "text", "parts"),
    [
        ("***", "secret", {"secret"}),
        ("postgres://u:***@db", "postgres://u:p@db@db", {"p@db"}),
        ("***:***", "a:b:c", {"a", "b:c", "a:b", "c"}),
        ("a ******", "a bc", {"bc"}),
        ("tok ***", "another text", {"another text"}),
        ("no stars", "no stars", set()),
        ("x***x", "x", {"x"}),
    ],
)
def test_what_is_hidden_is_found_in_the_text_itself(shown, text, parts):
    assert set(hidden_parts(shown, text)) == parts


def secrets_in(shown, text):
    return set(find_secrets([MaskedText(".a", shown)], {".a": text}))


def test_a_secret_of_many_lines_is_masked_line_by_line():
    assert secrets_in("***", "-- BEGIN --\n  abcd\n}\n") == {"-- BEGIN --", "abcd"}


def test_what_is_quoted_in_a_url_is_masked_as_it_is_used_too():
    assert secrets_in("db://u:***@db", "db://u:p%40ss@db") == {"p%40ss", "p@ss"}


def test_what_is_very_short_is_no_secret():
    assert secrets_in("a***", "axy") == set()


def test_the_longest_secret_goes_first():
    assert knowing("abc", "abcdef")("abcdef abc") == "*** ***"


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("the end secr...", "the end ***..."),
        ("the secr ... the rest", "the *** ... the rest"),
        ("a secr ...", "a *** ..."),
        ("se...", "se..."),
        ("secrse...\nsecret", "secrse...\n***"),
        ("nothing... here", "nothing... here"),
    ],
)
def test_of_a_line_that_was_cut_within_a_secret_its_beginning_is_masked(text, masked):
    assert knowing("secret")(text) == masked


def test_an_outcome_is_masked_but_for_its_result():
    given = Outcome(Verdict.FAILED, "Error", *["secret"] * 2, tail="secret", result="secret")
    masked = knowing("secret").outcome(given)
    assert (masked.words, masked.report, masked.tail) == ("***",) * 3
    assert masked.result == "secret"


def test_an_outcome_says_that_logs_are_left_out_where_the_secrets_are_not_known():
    mask = Mask(ORDER._replace(masked=(MaskedText(".a", "***"),)))
    masked = mask.outcome(Outcome(Verdict.FAILED, "Error", "words", "words"))
    assert masked.report.startswith("words\nThe output of pods is omitted")


def test_where_nothing_was_masked_nothing_is_kept_and_all_stays_as_it_is():
    mask = mask_for(ORDER)
    assert mask is mask_for(ORDER._replace(owner="other"))
    assert mask.is_known
    tell = [].append
    assert mask.telling(tell) == tell
    assert mask("text...") == "text..."


def test_texts_are_found_by_names_also_if_others_were_put_between_them():
    one = {"containers": [{"name": "a", "args": ["x", "y"], "env": [{"name": "V", "value": "z"}]}]}
    assert dict(texts_by_path(one)) == {
        ".containers[a].name": "a",
        ".containers[a].args[0]": "x",
        ".containers[a].args[1]": "y",
        ".containers[a].env[V].name": "V",
        ".containers[a].env[V].value": "z",
    }
