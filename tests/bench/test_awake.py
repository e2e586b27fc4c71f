"""The loops that keep the cores awake run beside no table that waits for the disk."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

import bench.__main__
from bench.report import Section
from bench.scale import Scale


def test_tables_that_wait_for_the_disk_are_measured_without_the_loops(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    running: list[bool] = []
    found: list[int] = []

    @contextmanager
    def awake() -> Iterator[None]:
        running.append(True)
        yield
        running.clear()

    def measure(_: Scale) -> Section:
        found.append(len(running))
        return Section()

    table = SimpleNamespace(HEADING="A table", measure=measure)
    monkeypatch.setattr(bench.__main__, "awake", awake)
    monkeypatch.setattr(bench.__main__, "import_module", lambda _: table)
    monkeypatch.setattr("shutil.which", lambda _: "/usr/bin/wrk")
    monkeypatch.setattr("bench.machine.facts", lambda: "a machine;")
    monkeypatch.setattr(
        sys, "argv", ["bench", "--quick", "stdio", "tasks", "agents", "growth", "http"]
    )
    assert bench.__main__.main() == 0
    assert found == [1, 0, 0, 0, 1]
    assert capsys.readouterr().out.count("Cores kept awake.") == 2
