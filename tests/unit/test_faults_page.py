"""docs/faults.md, as the fault matrix writes it."""

from __future__ import annotations

from tests.e2e.faults_page import FILE, NOT_PLAYED, holds, read_page, written_page
from tests.e2e.postgres_rows import POSTGRES_ROWS
from tests.e2e.rows import ROWS


def test_a_run_on_one_target_keeps_what_is_said_of_the_other() -> None:
    page = FILE.read_text(encoding="utf-8")
    assert written_page(read_page(page)) == page


def test_every_row_holds_on_both_targets() -> None:
    words = read_page(FILE.read_text(encoding="utf-8"))
    for row in ROWS:
        for target in ("local", "real"):
            word = words.get((row.name, target), NOT_PLAYED)
            assert holds(word), f"{row.name} on {target}: {word}"


def test_every_row_on_postgres_holds_or_has_not_been_played() -> None:
    words = read_page(FILE.read_text(encoding="utf-8"))
    for row in POSTGRES_ROWS:
        word = words.get((row.name, "postgres"), NOT_PLAYED)
        assert holds(word) or word == NOT_PLAYED, f"{row.name}: {word}"
