"""Bundles in bundles: their names, their depth, and the processes that serve them."""

import json
from pathlib import Path

import pytest

from portico.core.config.schema import ComponentEntry, Timeouts
from portico.library.bundles.bundle_reader import BundleReader
from portico.library.components.bundled import BundleOpener
from portico.library.components.classify import Component, classify
from portico.library.components.own_process import as_server, checked
from portico.library.components.resolver import RequestedComponent
from portico.library.components.wasm_process import COMPILE_S
from tests.commands.authoring.composing import (
    CALC,
    LOUD,
    OTHER_SDK,
    RUN,
    WORDS,
    call,
    composed,
    done,
)
from tests.gateway.observed import portico
from tests.library.wasm.building import wat

EMPTY = "(component)"
IMPATIENT = """
import sys
import portico.gateway.composition_app
from portico.commands.cli.main import main
from portico.core.config.schema import Timeouts

def brief(**given):
    return Timeouts(**{"init": 0.02, "list": 0.02, **given})

portico.gateway.composition_app.Timeouts = brief
main(sys.argv[1:])
"""
"""Portico, but it waits for servers no longer than Python needs to start."""


def tools(folder: Path, command: str) -> list[str]:
    listed = json.loads(portico(folder.parent, "inspect", command, "--json").stdout)
    return sorted(one["name"] for one in listed["tools"])


async def opened(*paths: Path) -> list[Component]:
    """Return the components of bundles beside each other."""

    def allow(bundle: BundleReader, path: str, origin: str) -> None:
        assert bundle.contents.components

    entries = [
        RequestedComponent(argument=str(path), component=classify(str(path))) for path in paths
    ]
    found = [one.component for one in await BundleOpener(allow).expand(entries)]
    return [one for one in found if one is not None]


def test_bundles_hold_bundles_eight_deep(folder: Path) -> None:
    made = composed(folder, folder / "calc.py", name="d0.portico")
    for depth in range(1, 9):
        made = composed(folder, made, name=f"d{depth}.portico")
    assert call(folder, made, "add", a=1, b=2) == "3"
    said = done(folder, "compose", made, "-o", folder / "d9.portico", code=1)
    assert "it holds bundles more than 8 deep" in said
    assert not (folder / "d9.portico").exists()


def test_an_inner_server_keeps_its_own_names_and_links(folder: Path) -> None:
    composed(folder, folder / "guard.py", folder / "calc.py", name="inner.portico")
    other = folder / "other.py"
    other.write_text(CALC.replace("add(", "plus("))
    bundle = composed(folder, "maths=" + str(folder / "inner.portico"), other, "--prefix")
    assert call(folder, bundle, "maths__add", a=2, b=1) == "42"
    assert call(folder, bundle, "other__plus", a=2, b=1) == "3"
    shown = done(folder, "inspect", bundle, "--verify")
    assert "every byte verified" in shown
    assert "maths/guard, maths/calc" in shown or "other, maths/guard, maths/calc" in shown


def test_each_of_eight_may_have_a_neighbour_and_the_innermost_a_program(folder: Path) -> None:
    (folder / "other.py").write_text(OTHER_SDK)
    (folder / "words.py").write_text(LOUD)
    made = composed(folder, folder / "other.py", folder / "calc.py", name="d0.portico")
    for depth in range(1, 9):
        neighbour = folder / f"neighbour{depth}.json"
        neighbour.write_text(json.dumps({"tools": [{**WORDS["tools"][0], "name": f"at-{depth}"}]}))
        made = composed(folder, made, neighbour, name=f"d{depth}.portico")
    assert call(folder, made, "shout", text="hi") == "HI"
    assert call(folder, made, "add", a=1, b=2) == "3"


def test_a_bundle_beside_others_is_not_given_up_while_it_starts(folder: Path) -> None:
    (folder / "impatient.py").write_text(IMPATIENT)
    inner = composed(folder, folder / "guard.py", folder / "calc.py", name="inner.portico")
    bundle = composed(folder, inner, folder / "words.json", name="outer.portico")
    command = RUN.replace("-m portico", str(folder / "impatient.py"))
    assert tools(folder, f"{command} {bundle}") == ["add", "hello"]


async def test_a_bundle_may_take_longer_than_anything_in_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PORTICO_HOME", str(folder.parent / "home"))
    (folder / "sums.wasm").write_bytes(wat(EMPTY))
    plain = composed(folder, folder / "calc.py", name="plain.portico")
    sandboxed = composed(folder, folder / "sums.wasm", name="sandboxed.portico")
    outer = composed(folder, sandboxed, folder / "words.json", name="outer.portico")
    first, second, third = await opened(plain, sandboxed, outer)
    usual = Timeouts()
    assert usual.init + usual.list < first.start_s < COMPILE_S < second.start_s < third.start_s
    configured = as_server(checked(ComponentEntry(name="outer", path=str(outer))))
    assert configured.timeouts.init == configured.timeouts.list == third.start_s
    patient = Timeouts(list=9_000.0)
    configured = as_server(checked(ComponentEntry(name="o", path=str(outer), timeouts=patient)))
    assert configured.timeouts.list == patient.list
