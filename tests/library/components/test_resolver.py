"""Resolving what a user names: profiles, aliases and references, before any component is made."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from portico.core.config.paths import config_file
from portico.core.documents.problems import ConfigError
from portico.library.components.aliases import ConfigAliases
from portico.library.components.classify import ComponentError
from portico.library.components.resolution import (
    components_of,
    default_resolvers,
    resolve_components,
)
from portico.library.components.resolver import RequestedComponent, Resolver, resolve_entries

SERVER = "from portico import Server\nserver = Server('one')\n"
GUARD = "def on_call(call, next):\n    return next(call)\n"
CONFIG = """
[components.calc]
path = "{folder}/calc.py"

[components.guard]
path = "{folder}/guard.py"

[profiles.core]
components = ["guard"]

[profiles.dev]
base = "core"
components = ["calc", "mine={folder}/calc.py"]
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PORTICO_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    os.makedirs(os.path.dirname(config_file()))
    (tmp_path / "calc.py").write_text(SERVER)
    (tmp_path / "guard.py").write_text(GUARD)
    Path(config_file()).write_text(CONFIG.format(folder=tmp_path))
    return tmp_path


async def named(*arguments: str, resolvers: Sequence[Resolver] = ()) -> list[tuple[str, str]]:
    """Return the name and the kind of each component."""
    every = [*resolvers, *default_resolvers(ConfigAliases())]
    entries = await resolve_components(arguments, (), every)
    return [(one.name, one.kind) for one in components_of(entries)]


class SlowRegistry:
    """Waits for a second, and fails."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def resolve(self, entry: RequestedComponent) -> Sequence[RequestedComponent] | None:
        if not entry.argument.startswith("oci://"):
            return None
        self.asked.append(entry.argument)
        why = f"{entry.label}: the registry does not answer; try again later"
        try:
            await asyncio.wait_for(asyncio.Event().wait(), 1)
        except TimeoutError:
            raise ComponentError(why) from None
        raise AssertionError("nobody answers")


async def test_a_slow_resolver_fails_before_any_component_is_made() -> None:
    slow = SlowRegistry()
    ticks = asyncio.create_task(asyncio.sleep(0))
    with pytest.raises(ComponentError, match="the registry does not answer; try again later"):
        await named("oci://host/calc:1", resolvers=[slow])
    assert slow.asked == ["oci://host/calc:1"]
    assert ticks.done()  # the loop was free meanwhile


async def test_a_profile_is_its_base_and_then_its_components() -> None:
    # Middleware is loaded as a file; a component of the config has its own process.
    assert await named("dev") == [("guard", "python"), ("calc", "command"), ("mine", "python")]


async def test_a_profile_has_no_single_name() -> None:
    with pytest.raises(ComponentError, match="all= names one component, and this has 3"):
        await named("all=dev")


async def test_the_path_of_a_cycle_is_shown() -> None:
    class Circle:
        async def resolve(self, entry: RequestedComponent) -> Sequence[RequestedComponent] | None:
            return [entry.inner({"a": "b", "b": "c", "c": "a"}[entry.argument])]

    with pytest.raises(ComponentError, match="a contains itself: a -> b -> c -> a"):
        await resolve_entries([RequestedComponent(argument="a")], [Circle()])


async def test_entries_without_an_end_are_refused() -> None:
    class Endless:
        async def resolve(self, entry: RequestedComponent) -> Sequence[RequestedComponent] | None:
            return [entry.inner(f"{entry.argument}x")]

    with pytest.raises(ComponentError, match="nested more than 8 deep"):
        await resolve_entries([RequestedComponent(argument="a")], [Endless()])


@pytest.mark.parametrize(
    "reference, why",
    [
        ("oci://host.example/name:1", "not pulled yet; run `portico pull oci://host.example/name:"),
        ("oci://host/name:1", "it names no host"),
        ("ns:name", "there is no default registry"),
        ("ns:name@1.0", "there is no default registry"),
    ],
)
async def test_a_reference_that_was_not_pulled_is_refused_with_a_remedy(
    reference: str, why: str
) -> None:
    with pytest.raises(ComponentError, match=why):
        await named(reference)


async def test_a_file_hides_a_profile_and_that_is_reported(
    home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (home / "dev").write_text(f"#!/usr/bin/env python\n{SERVER}")
    assert await named("dev") == [("dev", "python")]
    assert "so the profile dev of the config is not used" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("name", "used", "said"),
    [
        ("dev", "guard", "dev is the profile of the config, and not the project in this folder"),
        ("calc", "calc", "calc is the alias of the config, and not the project in this folder"),
        ("cat", "server", "cat is the project in this folder, and not the program /"),
        ("mine", "server", ""),
    ],
)
async def test_what_a_project_hides_or_is_hidden_by_is_reported(
    home: Path, capfd: pytest.CaptureFixture[str], name: str, used: str, said: str
) -> None:
    (home / name).mkdir()
    (home / name / "component.toml").write_text('component = "server.py"\n')
    (home / name / "server.py").write_text(SERVER)
    assert (await named(name))[0][0] == used
    shown = capfd.readouterr().err
    assert said in shown
    assert bool(said) == bool(shown)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('[profiles.a]\ncomponents = ["a"]', "contains itself: a -> a"),
        (
            '[profiles.a]\nbase = "b"\n[profiles.b]\ncomponents = ["a"]',
            "contains itself: a -> b -> a",
        ),
        ('[profiles.a]\nbase = "core"', "there is no profile core"),
        ('[servers.a]\ncommand = "x"\n[profiles.a]', "has the same name; rename one"),
        ('[profiles."a b"]\ncomponents = ["x"]', "not a valid profile name; write a-b"),
    ],
)
def test_a_wrong_profile_is_explained(text: str, problem: str) -> None:
    Path("own.toml").write_text(text)
    resolvers = default_resolvers(ConfigAliases("own.toml"))
    with pytest.raises(ConfigError) as error:
        asyncio.run(resolve_components(["a"], (), resolvers))
    assert problem in str(error.value)
