"""A few tests that failed beside others are run again alone; more failures stay failures."""

import json
from pathlib import Path

import pytest

from tests import rerun

PASSES = "tests/test_rerun.py::test_the_group_is_not_part_of_a_name"


def failed(folder: Path, *names: str) -> Path:
    path = folder / "lastfailed"
    path.write_text(json.dumps(dict.fromkeys(names, True)))
    return path


def test_the_group_is_not_part_of_a_name(tmp_path: Path) -> None:
    names = (
        "tests/a.py::test_b[x@y]",
        "tests/a.py::test_b[x@y]@some-group",
        "tests/a.py::test_c@g",
    )
    assert rerun.failed_tests(failed(tmp_path, *names)) == [
        "tests/a.py::test_b[x@y]",
        "tests/a.py::test_b[x@y]",
        "tests/a.py::test_c",
    ]
    assert rerun.failed_tests(tmp_path / "none") == []


@pytest.mark.parametrize(
    ("names", "code"),
    [
        ((PASSES,), 0),
        ((PASSES, "tests/test_rerun.py::test_that_does_not_exist"), 4),
        ((), 1),
        ([f"{PASSES}{number}" for number in range(4)], 1),
    ],
)
def test_few_failures_are_run_again(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    names: tuple[str, ...],
    code: int,
) -> None:
    monkeypatch.setattr(rerun, "LAST_FAILED", failed(tmp_path, *names))
    assert rerun.main() == code
    assert ("passed only alone" in capfd.readouterr().out) is (code == 0)
