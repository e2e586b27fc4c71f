"""A composition that starts itself is refused before it starts anything."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from portico.core.config.schema import ServerEntry
from portico.library.components.classify import Component, ComponentError, classify
from portico.library.components.cycles import MAX_DEPTH, enter
from portico.upstream.process.child_process import ChildProcess
from portico.upstream.process.environment import COMPOSITIONS, clean, meaningful
from portico.upstream.process.process_tree import MARK


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in (COMPOSITIONS, MARK):  # also removed after the test
        monkeypatch.setenv(name, "")
    (tmp_path / "calc.py").write_text("")
    return tmp_path


def composition(*arguments: str) -> list[Component]:
    return [classify(one) for one in arguments]


def test_a_composition_inside_of_itself_is_refused() -> None:
    again = composition("calc.py", "sh=sh start.sh --token hunter2")
    enter(again)
    with pytest.raises(ComponentError) as raised:
        enter(again)
    assert str(raised.value) == (
        "cannot start: the composition (calc, sh) is a component of itself; "
        "remove the component that runs it"
    )


def test_so_is_one_further_inside_and_under_other_names(folder: Path) -> None:
    enter(composition("calc.py", "python a"))
    enter(composition("python b"))
    with pytest.raises(ComponentError, match="a component of itself"):
        enter(composition(f"sums={folder}/./calc.py", "x=python 'a'"))


def test_an_alias_that_runs_itself_is_refused() -> None:
    entry = ServerEntry(name="again", command="portico", args=("run", "again"))
    enter([classify("again", {"again": entry})])
    with pytest.raises(ComponentError, match=r"\(again\) is a component of itself"):
        enter([classify("again", {"again": entry})])


def test_other_compositions_may_be_nested(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    enter(composition("python a", "python b"))
    enter(composition("python b", "python a"))
    enter(composition("python a b"))
    (folder / "sub").mkdir()
    monkeypatch.chdir(folder / "sub")
    enter(composition("python a b"))  # another program, because it is in another folder
    assert os.environ[COMPOSITIONS].count(":") == 3


def test_files_alone_start_nothing_and_may_be_run_anywhere() -> None:
    enter(composition("calc.py"))
    enter(composition("calc.py"))
    assert not os.environ[COMPOSITIONS]


def test_porticos_that_start_each_other_come_to_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MARK, ":".join("m" * (MAX_DEPTH + 1)))
    with pytest.raises(ComponentError, match="8 Porticos start each other"):
        enter(composition("python a"))
    enter(composition("python a"), is_bundle=True)  # its depth has a limit of its own
    monkeypatch.setenv(MARK, ":".join("m" * (2 * MAX_DEPTH + 1)))
    with pytest.raises(ComponentError, match="Porticos start each other"):
        enter(composition("python b"), is_bundle=True)


async def test_children_inherit_the_compositions_in_any_environment() -> None:
    enter(composition("python a"))
    show = f"import os; print(os.environ[{COMPOSITIONS!r}])"
    child = await ChildProcess.start([sys.executable, "-c", show], clean(os.environ), None)
    try:
        await child.exited.wait()
        shown = os.read(child.stdout.fileno(), 100).decode()
    finally:
        await child.end(0, 0)
        for pipe in (child.stdin, child.stdout, child.stderr):
            pipe.close()
    assert shown.strip() == os.environ[COMPOSITIONS]


def test_they_do_not_change_the_account_of_a_server() -> None:
    assert COMPOSITIONS not in meaningful({COMPOSITIONS: "x"})


def test_a_composition_that_runs_itself_ends_with_the_reason(folder: Path) -> None:
    (folder / "start.sh").write_text('exec "$PYTHON" -m portico run "sh start.sh"\n')
    environment = {**os.environ, "PYTHON": sys.executable, "PORTICO_HOME": str(folder / "home")}
    del environment[MARK], environment[COMPOSITIONS]
    argv = [sys.executable, "-m", "portico", "inspect", "sh start.sh"]
    ran = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert "the composition (start) is a component of itself" in ran.stderr
