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


def test_every_reason_is_one_of_a_row_that_was_kept() -> None:
    page = report.PAGE.read_text()
    assert [row for _, row in compare.REASONS if f"| {row} " not in page] == []
