"""The head of the performance page shows the figures of its tables, and none that were not kept."""

from pathlib import Path
from xml.etree import ElementTree as ET

from bench import chart, headline, report
from bench.chart import Panel
from bench.kept import Kept
from bench.report import Table, at_most
from bench.workload import ROOT

_NO_HEAD = """\
# Performance

<!-- begin bench headline -->
<!-- end bench headline -->

## How it is measured
"""


def _page(folder: Path) -> Path:
    """A page that has kept a run of the proxies only."""
    page = folder / "performance.md"
    page.write_text(_NO_HEAD)
    rows = [("Portico, modern era", "50", "45"), ("FastMCP, create_proxy", "3,278", "95")]
    title = "HTTP to a stdio upstream of 50 tools, after load"
    table = Table(title, ("", "call CPU us", "RSS MB"), rows)
    budgets = report.verdicts([at_most("wrap, a call", 50, 150, " us"), at_most("x", 3, 2, "x")])
    report.keep("wrap", "Proxies", f"{table.markdown()}\n{budgets.markdown()}", page)
    return page


def _front(folder: Path) -> Path:
    front = folder / "README.md"
    front.write_text(_NO_HEAD)
    return front


def test_a_figure_is_read_back_from_the_table_that_keeps_it(tmp_path: Path) -> None:
    kept = Kept(_page(tmp_path).read_text())
    where = ("wrap", "HTTP to a stdio upstream of 50 tools, after load")
    assert kept.figure(*where, "FastMCP, create_proxy", "call CPU us") == 3278
    assert kept.figure(*where, "nobody", "call CPU us") is None
    assert kept.figure("serve", "a table of no run", "wrap", "RSS MB") is None
    assert kept.budgets() == {"wrap, a call": "met", "x": "MISSED"}


def test_the_head_has_only_what_was_measured_and_names_missed_budgets(tmp_path: Path) -> None:
    page = _page(tmp_path)
    headline.redraw(page, _front(tmp_path), tmp_path / "performance.svg")
    head, _, _ = page.read_text().partition("<!-- end bench headline -->")
    rows = [line for line in head.splitlines() if line.startswith("|")][2:]
    assert [row.split("|")[2].strip() for row in rows] == ["50", "45"]
    assert "1 of 2 [budgets](#how-it-is-measured) are met. Missed: x." in head
    once = page.read_text()
    headline.redraw(page, _front(tmp_path), tmp_path / "performance.svg")
    assert page.read_text() == once


def test_a_bar_is_as_long_as_its_figure_says(tmp_path: Path) -> None:
    page = _page(tmp_path)
    headline.redraw(page, _front(tmp_path), tmp_path / "performance.svg")
    drawn = ET.fromstring((tmp_path / "performance.svg").read_text())
    bars = [bar for bar in drawn.iter() if bar.get("class", "").startswith("bar")]
    assert [bar.get("class") for bar in bars] == ["bar ours", "bar"] * 2
    ours, theirs = (float(bar.get("width", 0)) for bar in bars[2:])
    assert abs(ours / theirs - 45 / 95) < 0.01


def test_nothing_in_the_chart_leaves_its_panel() -> None:
    panel = Panel("Memory & more", "MB", [("Portico", 1_000_000), ("a peer", 1)])
    drawn = ET.fromstring(chart.svg([panel, panel, panel]))
    edges = [
        float(bar.get("x", 0)) + float(bar.get("width", 0))
        for bar in drawn.iter()
        if "bar" in bar.get("class", "")
    ]
    middle = chart.MARGIN + chart.WIDTH
    assert max(edge for edge in edges if edge <= middle) <= middle - chart.VALUE


def test_every_title_of_the_chart_fits_its_panel() -> None:
    """A bold letter of a title is about 9 pixels wide."""
    titles = [measure.what for measure in headline.measured(Kept(report.PAGE.read_text()))]
    assert len(titles) == 5
    assert [title for title in titles if len(title) * 9 > chart.WIDTH] == []


def test_the_front_page_shows_what_each_figure_is_compared_with(tmp_path: Path) -> None:
    front, picture = _front(tmp_path), tmp_path / "performance.svg"
    headline.redraw(_page(tmp_path), front, picture)
    rows = [line for line in front.read_text().splitlines() if line.startswith("| CPU")]
    assert [[cell.strip() for cell in row.split("|")[2:5]] for row in rows] == [
        ["FastMCP", "3,278 µs", "50 µs"]
    ]


def test_the_front_page_has_the_recall_that_the_page_about_search_has() -> None:
    table = headline.benefits(Kept(""), headline.SEARCH.read_text())
    ((what, whose, theirs, ours),) = table.rows
    assert (whose, what.partition(":")[0]) == ("FastMCP's search", "recall of search")
    assert 0 < float(theirs) < float(ours) < 1
    assert headline.benefits(Kept(""), "").rows == []


def test_the_pages_and_the_chart_are_those_of_the_kept_tables(tmp_path: Path) -> None:
    kept = (report.PAGE, report.FRONT, report.PICTURE)
    page, front, picture = (tmp_path / file.relative_to(ROOT) for file in kept)
    for copy in (page, picture):
        copy.parent.mkdir(parents=True)
    page.write_text(report.PAGE.read_text())
    front.write_text(report.FRONT.read_text())
    headline.redraw(page, front, picture)
    assert [file.read_text() for file in (page, front, picture)] == [
        file.read_text() for file in kept
    ]
