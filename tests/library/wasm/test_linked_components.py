"""Sandboxed middleware that `gateway.links` names as a component: its grants, and their changes."""

import asyncio
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.library.distribution.own_registry import own_registry
from tests.library.distribution.rigs import Home
from tests.library.wasm import building, hosting
from tests.library.wasm.test_middleware import ADDED, guest
from tests.library.wasm.test_middleware_chain import ECHO
from tests.serve.components import Workshop
from tests.serve.gateway import Gateway, Pipes, refused
from tests.serve.test_linked_config import MARKS
from tests.wrap.faults import portico_command, until
from tests.wrap.talk import Web, web

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("linked-wasm")]
ACCEPTS: Any = {"elicitation/create": {"action": "accept", "content": {}}}
ACCEPTED, REFUSED = '{"action":"accept","content":{}}', "refused: elicit is not granted"
MAY_ASK = {"path": "guard.wasm", "grants": {"questions": ["elicit"]}}


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    made = Workshop(tmp_path)
    made.file("calc.py", ECHO)
    for built in (guest(), noop()):
        asyncio.run(hosting.compiled(hosting.settings(built, tmp_path)))
    save(guest(), tmp_path)
    return made


def noop() -> Path:
    return building.javascript("noop.js", building.WIT / "own", "noop")


def save(built: Path, folder: Path) -> None:
    """Replace the middleware as a compiler does."""
    shutil.copy(built, folder / "guard.new")
    os.replace(folder / "guard.new", folder / "guard.wasm")


def linked(workshop: Workshop, guard: dict[str, Any], **settings: Any) -> None:
    components = {"guard": guard, "calc": {"path": "calc.py"}}
    workshop.write(components, **{"links": ["guard"], **settings})


def asking(gateway: Gateway) -> Any:
    return web(gateway.port, {"elicitation": {}}, answers=ACCEPTS)


def tools(client: Web) -> list[str]:
    return [one["name"] for one in json.loads(client.ask("tools/list"))["tools"]]


def test_a_component_is_a_link_with_its_grants_and_no_member(workshop: Workshop) -> None:
    linked(workshop, MAY_ASK, groups={"some": ["calc"]})
    for options in ((), ("--group", "some")):
        with Gateway(workshop.home, workshop.config, *options) as gateway, asking(gateway) as one:
            assert until(lambda client=one: "calc__echo" in tools(client)), gateway.stderr()
            assert sorted(ADDED) == sorted(name for name in tools(one) if "__" not in name)
            assert "calc__secret" not in tools(one)
            assert one.call("asked") == ACCEPTED
            assert one.call("calc__echo", text="hi") == "hi"
            status = one.call("gateway_status", detail="full") if not options else ""
            assert "guard" not in status


def test_changed_grants_and_a_changed_file_replace_the_link(workshop: Workshop) -> None:
    linked(workshop, {"path": "guard.wasm"})
    with Gateway(workshop.home, workshop.config) as gateway, asking(gateway) as client:
        assert client.call("asked") == REFUSED
        linked(workshop, MAY_ASK)
        assert until(lambda: client.call("asked") == ACCEPTED), gateway.stderr()
        linked(workshop, {**MAY_ASK, "enabled": False})
        kept = "links not reloaded; keeping the previous ones"
        assert until(lambda: kept in gateway.stderr())
        assert "guard is disabled; enable it, or remove it from gateway.links" in gateway.stderr()
        assert client.call("asked") == ACCEPTED
        linked(workshop, {"path": "guard.wasm"})
        assert until(lambda: client.call("asked") == REFUSED), gateway.stderr()
        save(noop(), workshop.folder)
        assert until(lambda: "calc__secret" in tools(client)), gateway.stderr()


def test_a_python_file_is_a_link_by_its_component(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path)
    workshop.file("calc.py", ECHO)
    workshop.file("marks.py", MARKS)
    linked(workshop, {"path": "marks.py"})
    with Pipes(workshop.home, workshop.config) as gateway:
        gateway.initialize()
        assert gateway.said("calc__echo", text="hi") == "outer hi"
        workshop.file("marks.py", MARKS.replace('"outer"', '"changed"'))
        assert until(lambda: gateway.said("calc__echo", text="hi") == "changed hi")
        linked(workshop, {"path": "marks.py:inner"})
        assert until(lambda: gateway.said("calc__echo", text="hi") == "inner hi")
        linked(workshop, {"path": "calc.py"}, links=[])
        assert until(lambda: "guard__echo" in gateway.tools())


PULLED = """[trust]
unsigned = ["*"]
[gateway]
expose = "all"
links = ["guard"]
[components.guard]
oci = "team:guard@1.0"
grants = { questions = ["elicit"] }
"""


def test_a_component_of_a_registry_is_a_link_without_its_registry(workshop: Workshop) -> None:
    author, user = Home(workshop.folder / "author"), Home(workshop.folder / "user")
    hosting.home(user.folder)
    with own_registry() as registry:
        author.write(registry.host).ok("push", workshop.folder / "guard.wasm", "team:guard@1.0")
        user.write(registry.host, trust=PULLED).ok("pull")
    with Gateway(user.folder / "home", user.config) as gateway, asking(gateway) as client:
        assert set(ADDED) <= set(tools(client))
        assert client.call("asked") == ACCEPTED


FAILING: dict[str, tuple[dict[str, Any], str]] = {
    "no middleware": ({"path": "own.wasm"}, "the component offers something"),
    "a server": ({"path": "calc.py"}, "calc.py: contains no middleware"),
    "disabled": ({"path": "guard.wasm", "enabled": False}, "guard is disabled; enable it"),
    "missing": ({"path": "gone.wasm"}, "gone.wasm: No such file or directory"),
    "missing secret": ({"path": "guard.wasm", "grants": {"secrets": ["X=${GONE}"]}}, "GONE"),
    "grants of a file without a sandbox": (
        {"path": "marks.py", "grants": {"questions": ["elicit"]}},
        "is not sandboxed, so nothing can be granted to it",
    ),
    "in process": (
        {"path": "guard.wasm", "in_process": True},
        "cannot be loaded into this process; remove in_process",
    ),
    "never pulled": ({"oci": "127.0.0.1:9/a/b:1"}, "127.0.0.1:9/a/b:1"),
}


@pytest.mark.parametrize("case", FAILING)
def test_a_component_that_cannot_be_a_link_ends_the_start(case: str, workshop: Workshop) -> None:
    entry, words = FAILING[case]
    shutil.copy(hosting.own_guest(), workshop.folder / "own.wasm")
    workshop.file("marks.py", "def on_call(call, next):\n    return 'marked'\n")
    linked(workshop, entry)
    code, said = refused(workshop.home, workshop.config)
    assert code == 1
    assert f"{workshop.config}: gateway.links[0]: " in said
    assert words in said
    assert "Traceback" not in said


def test_middleware_that_no_link_names_says_how(workshop: Workshop) -> None:
    linked(workshop, MAY_ASK, links=[])
    with Gateway(workshop.home, workshop.config) as gateway:
        status = json.dumps(gateway.status()["guard"])
    assert "is middleware, and offers nothing" in status
    assert 'write links = [\\"guard\\"] in [gateway]' in status


def said_by(workshop: Workshop, *words: str) -> subprocess.CompletedProcess[str]:
    config = ("--config", str(workshop.config))
    argv = portico_command(workshop.home, *words, *config)
    return subprocess.run(argv, capture_output=True, text=True, check=False, cwd=workshop.folder)


def test_other_commands_know_it_as_a_link(workshop: Workshop) -> None:
    linked(workshop, MAY_ASK)
    shown = json.loads(said_by(workshop, "inspect", "--json").stdout)
    (link,) = (one["component"] for one in shown["links"])
    assert (link["name"], link["role"]) == ("guard", "sandboxed middleware")
    assert "elicit" in json.dumps(link["grants"])
    assert [one["component"]["name"] for one in shown["components"]] == ["calc"]
    tested = said_by(workshop, "servers", "test")
    assert (tested.returncode, "guard" in tested.stdout) == (0, False), tested.stderr
    removed = said_by(workshop, "components", "remove", "guard")
    assert "gateway.links has guard; remove it there first" in removed.stderr
    linked(workshop, {**MAY_ASK, "enabled": False})
    broken = said_by(workshop, "inspect")
    assert (broken.returncode, "guard is disabled" in broken.stdout + broken.stderr) == (1, True)
