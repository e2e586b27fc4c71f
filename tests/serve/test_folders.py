"""Each window's servers run in the folder of that window, where the folder matters."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from sys import executable

import pytest

from tests.serve.gateway import Gateway, command, result_of, text_in
from tests.serve.projects import PLACED, Projects, at, placed, projects_in
from tests.support import node
from tests.wrap.faults import until

pytestmark = pytest.mark.slow


@pytest.fixture
def projects(tmp_path: Path) -> Iterator[Projects]:
    with projects_in(tmp_path) as made:
        yield made


@pytest.mark.parametrize("can_be_asked", [False, True])
def test_a_real_server_of_a_relative_folder_writes_in_the_project_of_its_window(
    projects: Projects, can_be_asked: bool
) -> None:
    filesystem = [str(node.node()), str(node.server("filesystem")), "."]
    projects.configure({"files": command(filesystem)})
    here, there = projects.project("here"), projects.project("there")
    first, second = (projects.window(one, can_be_asked=can_be_asked) for one in (here, there))
    first.text("files__write_file", path="note.txt", content="first")
    second.text("files__write_file", path="note.txt", content="second")
    assert (here / "note.txt").read_text() == "first"
    assert (there / "note.txt").read_text() == "second"
    assert second.text("files__read_text_file", path="note.txt") == "second"
    refused = second.result("files__write_file", path=str(here / "other.txt"), content="no")
    assert refused["isError"]
    assert not (here / "other.txt").exists()


def test_a_server_without_a_folder_runs_once_in_the_folder_of_each_window(
    projects: Projects,
) -> None:
    projects.configure({"placed": placed()})
    here, there = projects.project("here"), projects.project("there")
    windows = [projects.window(folder) for folder in (here, there, here, there)]
    places = [window.where() for window in windows]
    assert [folder for folder, _ in places] == [here, there, here, there]
    assert len({pid for _, pid in places}) == 2
    assert projects.folders_of_processes() == [here, there]


def test_windows_share_a_server_with_a_folder_of_its_own_or_for_any(
    projects: Projects, tmp_path: Path
) -> None:
    own = projects.project("own")
    projects.configure(
        {
            "fixed": placed(cwd=str(own)),
            "free": placed(folder="any"),
            "free_inside": placed(folder="any", cwd="projects/own"),
        }
    )
    windows = [projects.window(projects.project(name)) for name in ("here", "there")]
    for server, folder in (("fixed", own), ("free", tmp_path), ("free_inside", own)):
        places = {window.where(server) for window in windows}
        assert {where for where, _ in places} == {folder}
        assert len(places) == 1, server


def test_relative_commands_and_folders_are_those_of_each_project(projects: Projects) -> None:
    projects.configure({"script": command(["./serve.sh"]), "inside": placed(cwd="inside")})
    for name in ("here", "there"):
        script = projects.project(name) / "serve.sh"
        script.write_text(f'#!/bin/sh\nexec "{executable}" "{PLACED}"\n')
        script.chmod(0o755)
        projects.project(f"{name}/inside")
        window = projects.window(projects.project(name))
        assert window.where("script")[0] == projects.project(name)
        assert window.where("inside")[0] == projects.project(name) / "inside"


def test_a_component_runs_in_the_folder_of_its_window_too(projects: Projects) -> None:
    tool = "from portico import Server\nfrom pathlib import Path\nserver = Server('c', '1')\n"
    tool += "@server.tool\ndef where() -> str:\n    return f'{Path.cwd()} 0'\n"
    projects.config.with_name("component.py").write_text(tool)
    shared = {"path": "component.py", "in_process": True}
    tables: dict[str, dict[str, object]] = {
        "components.file": {"path": "component.py"},
        "components.command": {"command": f"{executable} {PLACED}"},
        "components.within": shared,
    }
    projects.configure({}, **tables)
    here, there = projects.project("here"), projects.project("there")
    first, second = projects.window(here), projects.window(there)
    for name in ("file", "command"):
        assert (first.where(name)[0], second.where(name)[0]) == (here, there)
    assert second.where("within")[0] == here  # where the gateway was started


def test_each_folder_has_one_process_whichever_way_leads_there(
    projects: Projects, tmp_path: Path
) -> None:
    projects.configure({"placed": placed()})
    here, there = projects.project("here"), projects.project("there")
    link = tmp_path / "link"
    link.symlink_to(there)
    windows = [projects.window(folder) for folder in (here, there, link)]
    places = [window.where() for window in windows]
    assert [folder for folder, _ in places] == [here, there, there]
    assert places[1] == places[2]


def test_a_window_in_another_folder_starts_nothing_before_it_calls(projects: Projects) -> None:
    projects.configure({"placed": placed()})
    here, there = projects.project("here"), projects.project("there")
    first = projects.window(here)
    first.where()
    second = projects.window(there)
    assert second.tools() == first.tools()
    assert projects.folders_of_processes() == [here]
    second.where()
    assert projects.folders_of_processes() == [here, there]


def test_the_status_names_the_folder_of_each_process(projects: Projects) -> None:
    projects.configure({"placed": placed(), "free": placed(folder="any")})
    here, there = projects.project("here"), projects.project("there")
    first, second = projects.window(here), projects.window(there)
    assert (first.where()[0], second.where()[0]) == (here, there)
    status = projects.status()
    assert status["folder"] == str(here)
    (other,) = status["folders"]
    assert (other["folder"], other["starts"], other["error"]) == (str(there), 1, "")
    assert projects.status("free")["folder"] == str(projects.config.parent)
    said = projects.portico(here, "status").stdout
    rows = [line.split() for line in said.splitlines() if line.split()[0] == "placed"]
    assert [row[-1] for row in rows] == [str(here), str(there)]
    own = result_of(
        second.ask("tools/call", {"name": "gateway_status", "arguments": {"detail": "full"}})
    )
    assert str(there) in str(own["structuredContent"]["servers"])


def test_a_command_calls_the_server_of_the_folder_that_it_is_given_in(projects: Projects) -> None:
    projects.configure({"placed": placed()})
    here, there = projects.project("here"), projects.project("there")
    projects.window(here).where()
    for folder in (there, here):
        said = projects.portico(folder, "call", "placed__where").stdout
        assert said.startswith(f"{folder} "), said


def test_a_folder_that_is_gone_is_named(projects: Projects) -> None:
    projects.configure({"placed": placed()})
    here, there = projects.project("here"), projects.project("there")
    first, second = projects.window(here), projects.window(there)
    first.where()
    there.rmdir()
    failed = second.ask("tools/call", {"name": "placed__where", "arguments": {}})
    assert f"there is no folder {there}" in failed["error"]["message"]
    assert first.where()[0] == here
    there.mkdir()
    until(lambda: "error" not in second.ask("tools/call", {"name": "placed__where"}), 30)
    assert second.where()[0] == there


def test_a_server_that_starts_in_one_folder_only_blocks_no_other(projects: Projects) -> None:
    projects.configure({"placed": command([executable, "serve.py"])})
    here, there = projects.project("here"), projects.project("there")
    (there / "serve.py").symlink_to(PLACED)
    first, second = projects.window(here), projects.window(there)
    until(lambda: "placed__where" in second.tools(), 30)
    for _ in range(4):
        failed = first.ask("tools/call", {"name": "placed__where", "arguments": {}})
        assert "error" in failed or failed["result"].get("isError"), failed
        assert second.where()[0] == there


def test_a_project_with_other_tools_has_those_and_no_others(projects: Projects) -> None:
    projects.configure({"placed": placed()})
    here = projects.project("here", "build.tool")
    there = projects.project("there", "deploy.tool")
    first = projects.window(here)
    first.where()
    assert "placed__build" in first.tools()
    second = projects.window(there)
    assert "placed__build" in second.tools()  # as stored, until its own process has listed
    second.where()
    until(lambda: "placed__deploy" in second.tools(), 30)
    assert "placed__build" not in second.tools()
    assert second.text("placed__deploy") == f"deploy in {there}"
    assert "placed__build" in first.tools()
    assert "placed__deploy" not in first.tools()
    assert first.text("placed__build") == f"build in {here}"
    # Known to differ by now: another folder is listed before it is used.
    third = projects.window(projects.project("third", "test.tool"))
    until(lambda: "placed__test" in third.tools(), 30)


def test_a_changed_config_starts_the_new_servers_in_each_folder(projects: Projects) -> None:
    projects.configure({"placed": placed()})
    here, there = projects.project("here"), projects.project("there")
    windows = [projects.window(folder) for folder in (here, there)]
    before = [window.where() for window in windows]
    projects.configure({"placed": placed(env={"CHANGED": "1"}), "new": placed()})
    for window, folder, old in zip(windows, (here, there), before, strict=True):
        until(lambda w=window, o=old: w.where()[1] != o[1], 30)
        assert window.where()[0] == folder
        until(lambda w=window: "new__where" in w.tools(), 30)
        assert window.where("new")[0] == folder
    until(lambda: len(projects.folders_of_processes()) == 4, 30)


def test_windows_keep_their_folders_when_their_gateway_is_killed(projects: Projects) -> None:
    projects.configure({"placed": placed()})
    folders = [projects.project(name) for name in ("here", "there")]
    windows = [projects.window(folder) for folder in folders]
    assert [window.where()[0] for window in windows] == folders
    os.kill(projects.owner(), signal.SIGKILL)
    for window, folder in zip(windows, folders, strict=True):
        window.ask("tools/call", {"name": "placed__where", "arguments": {}})  # may be lost
        assert window.where()[0] == folder


def test_clients_over_http_have_the_folder_of_the_gateway(projects: Projects) -> None:
    projects.configure({"placed": placed()})
    here, there = projects.project("here"), projects.project("there")
    with Gateway(projects.home, projects.config, by=at(here)) as gateway:
        window = projects.window(there)
        with gateway.client() as client:
            said = text_in(result_of(client.call("placed__where")))
            assert said.startswith(f"{here} ")
        assert window.where()[0] == there
        window.leave()


@pytest.mark.parametrize("modern", [False, True])
def test_the_task_of_a_server_is_followed_in_its_folder(projects: Projects, modern: bool) -> None:
    projects.configure({"placed": placed()})
    here, there = projects.project("here"), projects.project("there")
    first, second = projects.window(here, modern=modern), projects.window(there, modern=modern)
    tasks = [window.submitted("placed__wait", file="go") for window in (first, second)]
    for folder in (there, here):
        (folder / "go").touch()
    for window, task, folder in zip((first, second), tasks, (here, there), strict=True):
        assert f"found in {folder}" in str(window.outcome(task))


@pytest.mark.parametrize("begins", ["here", "there"])
def test_a_call_that_is_resumed_runs_in_the_folder_in_which_it_was_made(
    projects: Projects, begins: str
) -> None:
    slow = {"placed": placed(sync_budget_s=0.2)}
    projects.configure(slow, gateway={"drain": 0.5}, tasks={"lease_s": 1})
    here, there = projects.project("here"), projects.project("there", "kept.txt")
    starter = projects.window(projects.project(begins))  # the gateway has its folder
    first, second = projects.window(here, modern=True), projects.window(there)
    explained = second.result("execute_tool", name="placed__wait", arguments={"file": "go"})
    task = explained["structuredContent"]["task_id"]
    for window in (starter, second):
        window.leave()
    projects.control("stop")
    assert first.outcome(task)["status"] == "failed"  # interrupted, in the first window's gateway
    for folder in (here, there):
        (folder / "go").touch()
    resumed = projects.portico(here, "tasks", "resume", task, "--json")
    new = json.loads(resumed.stdout)["id"]
    assert f"found in {there}" in str(first.outcome(new))


def test_a_task_whose_folder_is_gone_says_so(projects: Projects) -> None:
    slow = {"placed": placed(sync_budget_s=0.2)}
    projects.configure(slow, gateway={"drain": 0.5}, tasks={"lease_s": 1})
    here, there = projects.project("here"), projects.project("there")
    first, second = projects.window(here, modern=True), projects.window(there)
    explained = second.result("execute_tool", name="placed__wait", arguments={"file": "go"})
    task = explained["structuredContent"]["task_id"]
    second.leave()
    projects.control("stop")
    assert first.outcome(task)["status"] == "failed"
    there.rmdir()
    resumed = projects.portico(here, "tasks", "resume", task, "--json")
    new = json.loads(resumed.stdout)["id"]
    assert f"there is no folder {there}" in str(first.outcome(new))
