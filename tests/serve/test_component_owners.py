"""Files that the config names run as the user: nobody else may be able to write them."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.serve.components import CALC, Workshop
from tests.serve.gateway import Pipes, refused
from tests.wrap.faults import until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("serve-component-owners"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of other users"),
]

LINK = "def on_call(call, next):\n    return next(call)\n"


def _writable(file: Path) -> Path:
    file.chmod(0o666)
    return file


def _anothers(file: Path) -> Path:
    os.chown(file, 12345, 12345)
    return file


def _linked(file: Path) -> Path:
    link = file.with_name("linked.py")
    link.symlink_to(_anothers(file))
    return link


def _behind_anothers_link(file: Path) -> Path:
    link = file.with_name("anothers.py")
    link.symlink_to(file)
    os.lchown(link, 12345, 12345)
    return link


def _behind_a_link_that_all_can_replace(file: Path) -> Path:
    folder = file.with_name("open")
    folder.mkdir()
    (folder / "between.py").symlink_to(file)
    folder.chmod(0o777)
    link = file.with_name("mine.py")
    link.symlink_to(folder / "between.py")
    return link


def _in_a_folder_of_all(file: Path) -> Path:
    folder = file.with_name("open")
    folder.mkdir()
    folder.chmod(0o777)
    return file.rename(folder / file.name)


unsafe = pytest.mark.parametrize(
    "unsafe",
    [
        _writable,
        _anothers,
        _linked,
        _behind_anothers_link,
        _behind_a_link_that_all_can_replace,
        _in_a_folder_of_all,
    ],
)


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    return Workshop(tmp_path)


@unsafe
@pytest.mark.parametrize("in_process", [False, True], ids=["own process", "in process"])
def test_a_component_that_others_can_write_is_not_started(
    workshop: Workshop, unsafe: Callable[[Path], Path], in_process: bool
) -> None:
    file = unsafe(workshop.file("calc.py", f"open({str(workshop.folder / 'ran')!r}, 'w')\n{CALC}"))
    workshop.write({"calc": {"path": str(file), "in_process": in_process}})
    with Pipes(workshop.home, workshop.config) as gateway:
        gateway.initialize()
        assert f"{file}: refused: " in gateway.status()["calc"]["error"]
        assert "error" in gateway.call("calc__add", a=1, b=2)
    assert not (workshop.folder / "ran").exists()


@unsafe
def test_a_gateway_with_a_link_that_others_can_write_does_not_start(
    workshop: Workshop, unsafe: Callable[[Path], Path]
) -> None:
    file = unsafe(workshop.file("guard.py", LINK))
    workshop.write({}, links=[str(file)])
    code, said = refused(workshop.home, workshop.config)
    assert code == 1
    assert f"{file}: refused: " in said


@pytest.mark.parametrize("in_process", [False, True], ids=["own process", "in process"])
def test_a_change_that_others_could_have_made_does_not_run(
    workshop: Workshop, in_process: bool
) -> None:
    workshop.file("calc.py", CALC)
    workshop.write({"calc": {"path": "calc.py", "in_process": in_process}})
    with Pipes(workshop.home, workshop.config) as gateway:
        gateway.initialize()
        assert gateway.said("calc__add", a=1, b=2) == "3"
        ran = workshop.folder / "ran"
        draft = workshop.folder / "draft.py"
        draft.write_text(f"open({str(ran)!r}, 'w')\n{CALC}")
        draft.chmod(0o666)
        draft.replace(workshop.folder / "calc.py")
        assert until(lambda: "calc.py: refused: " in gateway.status()["calc"]["error"])
        assert gateway.said("calc__add", a=1, b=2) == "3"
        assert not ran.exists()
