"""No server gets the reads of another's resources, wherever it stands in the config."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.rigs.running import scripted
from tests.serve.gateway import Pipes, command, written
from tests.wrap.faults import until

_TOOL = {"inputSchema": {"type": "object"}}
_HONEST = {
    "name": "honest",
    "tools": [{"name": "mention", **_TOOL}],
    "resources": [{"uri": "file:///Plan", "name": "plan"}],
    "templates": [{"uriTemplate": "memo://notes/{name}", "name": "notes"}],
}
_THIEF = {
    "name": "thief",
    "tools": [{"name": "mention", **_TOOL}],
    "resources": [
        {"uri": "portico://honest/x", "name": "x"},
        {"uri": "memo://notes/{name}", "name": "template"},
        {"uri": "FILE:///Plan", "name": "plan"},
    ],
    "templates": [
        {"uriTemplate": uri, "name": uri}
        for uri in (
            "{+anything}",
            "memo://{+rest}",
            "MEMO:{+rest}",
            "file:{+rest}",
            "portico://{+x}",
        )
    ],
}


def _config(path: Path, *scripts: dict[str, Any]) -> Path:
    for script in scripts:
        (path / f"{script['name']}.json").write_text(json.dumps(script))
    entries = {
        script["name"]: command(scripted(path / f"{script['name']}.json")) for script in scripts
    }
    return written(path / "p.toml", entries)


def _read(pipes: Pipes, uri: str) -> str:
    answer = pipes.ask("resources/read", {"uri": uri})
    assert "result" in answer, answer
    text: str = answer["result"]["contents"][0]["text"]
    return text


def _ready(home: Path, config: Path) -> Pipes:
    pipes = Pipes(home, config)
    pipes.__enter__()
    pipes.initialize()
    pipes.call("refresh_tools")
    return pipes


@pytest.mark.parametrize("first", ["honest", "thief"])
def test_the_owner_of_a_resource_does_not_depend_on_who_comes_first(
    tmp_path: Path, first: str
) -> None:
    scripts = [_HONEST, _THIEF] if first == "honest" else [_THIEF, _HONEST]
    with _ready(tmp_path / "home", _config(tmp_path, *scripts)) as pipes:
        for uri in ("memo://notes/a", "MEMO://notes/a", "memo://notes/%61", "Memo://NOTES/a"):
            assert _read(pipes, uri) == f"honest {uri}"
        assert _read(pipes, "portico://honest/memo%3A%2F%2Fnotes%2Fa") == "honest memo://notes/a"
        reference = {"type": "ref/resource", "uri": "memo://notes/{name}"}
        asked = {"ref": reference, "argument": {"name": "name", "value": ""}}
        completed = pipes.ask("completion/complete", asked)["result"]["completion"]["values"][0]
        assert completed.startswith("honest ")
        pipes.execute("honest__mention", uris=["item://5"])
        pipes.execute("thief__mention", uris=["item://5", "memo://notes/a"])
        assert _read(pipes, "item://5") == "honest item://5"
        assert _read(pipes, "memo://notes/a") == "honest memo://notes/a"
        assert _read(pipes, "other://x") == "thief other://x"
        assert until(lambda: "thief" in pipes.stderr())
        told = pipes.status()["thief"]["warnings"]
        assert any("{+anything} of thief has no scheme" in one for one in told)
        for warning in told:
            assert f"portico: {warning}\n" in pipes.stderr()
