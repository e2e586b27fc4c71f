"""A row that costs more than in the last kept run is named."""

from pathlib import Path

import pytest

from bench import compare, report
from bench.kept import Kept
from bench.report import Table

TITLE, COLUMNS = "Calls", ("", "CPU us", "calls/s, 32 in flight")


def _table(*rows: tuple[str, str, str]) -> Table:
    return Table(TITLE, COLUMNS, rows)


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    """A run in which the floor took 10, and Portico 20."""
    page = tmp_path / "performance.md"
    page.write_text("# Performance\n")
    before = _table(("floor", "10", "1,000"), ("Portico, wrap", "20.0", "500"))
    report.keep("wrap", "Proxies", before.markdown(), page)
    return Kept(page.read_text())


def test_a_row_that_costs_a_fifth_more_is_named_with_its_factor(kept: Kept) -> None:
    now = _table(("floor", "10", "1,000"), ("Portico, wrap", "24", "500"))
    (line,) = compare.dearer("wrap", [now], kept)
    assert line == "Calls, Portico, wrap, CPU us: 1.20 times (no reason is given)"


def test_a_reason_stands_beside_its_row(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "REASONS", {("wrap", "Portico, wrap"): "it checks more"})
    now = _table(("Portico, wrap", "24", "500"))
    (line,) = compare.dearer("wrap", [now], kept)
    assert line.endswith("1.20 times (it checks more)")


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param([("Portico, wrap", "22.9", "500")], id="within 1.15 times"),
        pytest.param([("Portico, wrap", "10", "5,000")], id="cheaper"),
        pytest.param([("floor", "15", "900"), ("Portico, wrap", "30", "500")], id="a slow machine"),
        pytest.param([("floor", "20", "900"), ("Portico, wrap", "20", "500")], id="the floor"),
        pytest.param([("Portico, serve", "99", "500")], id="a new row"),
        pytest.param([("Portico, wrap", "-", "500")], id="not measured"),
    ],
)
def test_nothing_else_is_named(kept: Kept, rows: list[tuple[str, str, str]]) -> None:
    assert compare.dearer("wrap", [_table(*rows)], kept) == []
    assert compare.dearer("serve", [_table(("Portico, wrap", "99", "1"))], kept) == []


def test_a_figure_of_which_more_is_better_is_not_a_cost(kept: Kept) -> None:
    assert compare.dearer("wrap", [_table(("Portico, wrap", "20", "5,000"))], kept) == []


def test_a_row_of_a_table_without_a_title_is_compared(tmp_path: Path) -> None:
    page = tmp_path / "performance.md"
    page.write_text("# Performance\n")
    stored = Table("", ("finished tasks", "open, ms"), [("100", "10"), ("100,000", "20")])
    disk = Table("", ("", "p50 ms"), [("one commit of SQLite", "4"), ("a task", "5")])
    report.keep("tasks", "Tasks", f"{stored.markdown()}\n{disk.markdown()}", page)
    now = Table("", disk.columns, [("one commit of SQLite", "8"), ("a task", "20")])
    grown = Table("", stored.columns, [("100", "10"), ("100,000", "30")])
    found = compare.dearer("tasks", [now, grown], Kept(page.read_text()))
    assert [line.split(" (")[0] for line in found] == [
        "tasks, a task, p50 ms: 2.00 times",
        "tasks, 100,000, open, ms: 1.50 times",
    ]


def test_every_kept_table_has_rows_that_are_compared() -> None:
    kept = list(Kept(report.PAGE.read_text()).rows())
    assert len(kept) > 40
    of_others = [
        ("wrap", "Spawn to list beside Portico's, for information"),
        ("agents", "Start of a real agent"),
    ]
    ours = {(part, title): any(map(compare.is_ours, rows)) for part, title, rows in kept}
    assert [table for table, found in ours.items() if not found] == of_others


def test_every_reason_is_one_of_a_row_that_was_kept() -> None:
    page = report.PAGE.read_text()
    assert [row for _, row in compare.REASONS if f"| {row} " not in page] == []
