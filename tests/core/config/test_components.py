"""The components of a config: their files and commands, and each mistake with its line."""

import os
from pathlib import Path

import pytest

from portico.core.config.read import read
from portico.core.config.schema import Config, Timeouts, ToolFilter
from portico.core.documents.problems import ConfigError

WHOLE = """
[gateway]
links = ["./redact.py", "~/log.py:timed"]
pinned = ["calc__add"]

[servers.web]
url = "https://example.com/mcp"

[components.calc]
path = "./tools/calc.py:server"
env = { KEY = "${KEY}" }
cwd = "work"
title = "Calculator"
description = "Adds numbers"
tags = ["maths"]
tools = { allow = ["add"] }
timeouts = { init = 5 }
instances = 2
sharing = "per-client"
may_ask = false
max_in_flight = 8
max_tools = 10

[components.notes]
path = "notes.json"
handlers = "handlers.py"
in_process = true

[components.files]
command = "npx -y 'some server' ${KEY}"

[components.split]
command = "npx"
args = ["-y", "other"]

[components.off]
path = "nowhere.py"
enabled = false

[groups.all]
servers = ["web", "calc"]
"""


def found(folder: Path, text: str, **variables: str) -> Config:
    path = folder / "portico.toml"
    path.write_text(text)
    return read(path, environ=variables)


def problems(folder: Path, text: str) -> list[str]:
    with pytest.raises(ConfigError) as error:
        found(folder, text)
    return [problem.removeprefix(f"{folder}{os.sep}") for problem in error.value.problems]


def test_a_component_has_a_path_or_a_command_and_the_options_of_a_server(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    for name in ("tools/calc.py", "notes.json", "handlers.py"):
        (tmp_path / name).write_text("")
    config = found(tmp_path, WHOLE, KEY="a 'b")
    calc, notes, files, split, off = config.components.values()
    assert calc.path == str(tmp_path / "tools/calc.py:server")
    assert calc.files == (str(tmp_path / "tools/calc.py"),)
    assert (calc.env, calc.cwd) == ({"KEY": "a 'b"}, "work")
    assert (calc.title, calc.description, calc.tags) == ("Calculator", "Adds numbers", ("maths",))
    assert (calc.tools, calc.timeouts) == (ToolFilter(allow=("add",)), Timeouts(init=5))
    assert (calc.instances, calc.sharing, calc.may_ask) == (2, "per-client", False)
    assert (calc.max_in_flight, calc.max_tools) == (8, 10)
    assert notes.files == (str(tmp_path / "notes.json"), str(tmp_path / "handlers.py"))
    assert notes.in_process
    # The words are split before a variable is expanded, so its value is one argument.
    assert (files.command, files.args) == ("npx", ("-y", "some server", "a 'b"))
    assert (split.command, split.args) == ("npx", ("-y", "other"))
    assert not off.problem
    assert config.disabled == ["off"]
    assert config.groups["all"].servers == ("web", "calc")
    home = os.path.expanduser("~")
    assert config.gateway.links == (str(tmp_path / "redact.py"), f"{home}/log.py:timed")
    assert not config.warnings


def test_every_mistake_is_reported_with_its_line(tmp_path: Path) -> None:
    for name in ("calc.py", "a.py", "a.wasm"):
        (tmp_path / name).write_text("")
    text = """[servers.calc]
command = "x"
[components.calc]
path = "calc.py"
[components.both]
path = "a.py"
command = "x"
[components.neither]
title = "x"
[components.typo]
pth = "a.py"
[components.later]
path = "a.wasm"
instance = "x"
grants = ["net"]
[components.remote]
url = "https://example.com"
[components.shared]
command = "x"
in_process = true
handlers = "a.py"
[components.inside]
path = "a.py"
in_process = true
env = { A = "b" }
[components.args]
path = "a.py"
args = ["x"]
[components.quote]
command = "x 'y"
[components."my tool"]
path = "a.py"
[gateway]
links = ["", 5]
[groups.some]
servers = ["calk"]
"""
    assert problems(tmp_path, text) == [
        "portico.toml:1: servers.calc: has the same name as components.calc; rename one of them",
        "portico.toml:3: components.calc: has the same name as servers.calc; rename one of them",
        "portico.toml:5: components.both: has both path and command; remove one of them",
        "portico.toml:8: components.neither: has neither path nor command; "
        'add path = "file.py" or a command',
        "portico.toml:11: components.typo.pth: unknown key; did you mean path?",
        "portico.toml:14: components.later.instance: x is not one of call, session, shared; "
        "use one of them",
        "portico.toml:15: components.later.grants: must be a table, not a list",
        "portico.toml:17: components.remote.url: a component has no url; "
        "write it as a server in [servers]",
        "portico.toml:20: components.shared.in_process: is for a path, not a command; remove it",
        "portico.toml:21: components.shared.handlers: is for a path, not a command; remove it",
        "portico.toml:25: components.inside.env: has no effect with in_process: "
        "there is no process of its own; remove it",
        "portico.toml:28: components.args.args: is for a command, not a path; remove it",
        "portico.toml:30: components.quote.command: cannot be split into a command and its "
        "arguments: no closing quotation; close the quote",
        "portico.toml:31: components.'my tool': is not a valid component name; write my-tool",
        "portico.toml:34: gateway.links[1]: must be a string, not a number; put it in quotes",
        "portico.toml:34: gateway.links[0]: is empty; give a Python file",
        "portico.toml:36: groups.some.servers[0]: there is no server calk; did you mean calc?",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("components = 1\n", "portico.toml:1: components: must be a table, not a number"),
        ("components.a = 1\n", "portico.toml:1: components.a: must be a table, not a number"),
        ("[components.a]\n[components.a]\n", "portico.toml:2: components.a: is set twice"),
        ("[components.a]\npath = ''\n", "portico.toml:2: components.a.path: is empty"),
    ],
)
def test_a_broken_table_is_explained(text: str, said: str, tmp_path: Path) -> None:
    assert problems(tmp_path, text)[0].startswith(said)


def test_a_file_that_cannot_be_read_stops_only_its_component(tmp_path: Path) -> None:
    (tmp_path / "folder.py").mkdir()
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "good.py").write_text("")
    names = ("gone", "folder", "pipe", "good")
    text = "".join(f'[components.{name}]\npath = "{name}.py"\n' for name in names)
    config = found(tmp_path, text)
    assert [line.removeprefix(f"{tmp_path}{os.sep}") for line in config.unresolved] == [
        f"portico.toml:2: components.gone.path: {tmp_path}/gone.py: No such file or directory; "
        "correct the path",
        f"portico.toml:4: components.folder.path: {tmp_path}/folder.py: a folder, not a file; "
        "give a file in it",
        f"portico.toml:6: components.pipe.path: {tmp_path}/pipe.py: not a regular file; "
        "give a .py or a .json file",
    ]
    assert [bool(entry.problem) for entry in config.components.values()] == [True] * 3 + [False]


def test_a_file_without_permission_to_read_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.py").write_text("")
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may read everything
    config = found(tmp_path, '[components.a]\npath = "a.py"\n')
    assert "cannot be read: Permission denied; run `chmod u+r` on it" in config.unresolved[0]


def test_the_settings_of_another_client_are_left_alone(tmp_path: Path) -> None:
    text = '[mcp_servers.a]\ncommand = "x"\n[components]\nsize = 5\n'
    assert not found(tmp_path, text).components


def test_links_are_files_and_components_by_name(tmp_path: Path) -> None:
    for name in ("guard.wasm", "plain"):
        (tmp_path / name).write_text("")
    text = """[gateway]
links = ["guard", "plain", "./guard", "guard.wasm"]
[components.guard]
path = "guard.wasm"
instance = "session"
grants = { questions = ["elicit"] }
[components.calc]
path = "plain"
"""
    config = found(tmp_path, text)
    files = [str(tmp_path / name) for name in ("plain", "guard", "guard.wasm")]
    assert config.gateway.links == ("guard", *files)
    assert config.link_files == [f"{files[2]}", f"{files[2]}.toml", *files]
    assert (list(config.linked), list(config.entries)) == (["guard"], ["calc"])
    assert list(config.aliases) == ["guard", "calc"]


def test_every_mistake_in_links_is_reported_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("")
    text = """[gateway]
links = ["twice", "twice", "nobody", "web", "runs", "keys"]
[servers.web]
url = "https://example.com/mcp"
[components.twice]
path = "a.py"
title = "Twice"
[components.runs]
command = "x"
[components.keys]
path = "a.py"
env = { A = "b" }
may_ask = false
[groups.some]
servers = ["web", "Twice"]
"""
    no_effect = "is not for a component in gateway.links; remove it, or the link"
    assert problems(tmp_path, text) == [
        "portico.toml:2: gateway.links[1]: names twice again; remove one of them",
        "portico.toml:2: gateway.links[2]: nobody is neither a component nor a file; "
        "add [components.nobody], or give a path, such as ./nobody.py",
        "portico.toml:2: gateway.links[3]: web is a server, not middleware; give a file or a "
        "component",
        f"portico.toml:9: components.runs.command: {no_effect}",
        f"portico.toml:12: components.keys.env: {no_effect}",
        f"portico.toml:13: components.keys.may_ask: {no_effect}",
        "portico.toml:15: groups.some.servers[1]: twice is in gateway.links, so it is not a member"
        "; remove it here or there",
    ]
