"""The page about the config file: what it shows can be read, and it names every key."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from portico.core.config.agent_presets import PRESETS
from portico.core.config.agent_values import TOOL_KINDS
from portico.core.config.agents_schema import (
    AgentCallbacks,
    AgentEntry,
    AgentPermissions,
    AgentPool,
    AgentsDefaults,
    AgentTimeouts,
    RateLimit,
    Retention,
    RoutingRule,
)
from portico.core.config.auth_settings import AuthSettings
from portico.core.config.publishing import RegistrySettings, TrustedKey
from portico.core.config.read import read
from portico.core.config.schema import (
    COMPONENT,
    SERVER,
    ComponentEntry,
    Gateway,
    Rerank,
    Search,
    ServerEntry,
    TaskSettings,
    Timeouts,
)
from portico.core.config.values import readers
from portico.core.documents.problems import ConfigError
from tests.docs.pages import Block, blocks, section, text_of

PAGE = "docs/use/config.md"
ENVIRON = {"GITHUB_TOKEN": "t"}


@pytest.mark.parametrize(
    "block",
    [
        pytest.param(block, id=f"{PAGE}:{block.line}")
        for block in blocks(PAGE)
        if block.language in ("toml", "json")
    ],
)
def test_a_config_that_is_shown_can_be_read(block: Block, tmp_path: Path) -> None:
    path = tmp_path / (block.file or "portico.toml")
    path.write_text(block.text)
    assert not [line for line in read(path, environ=ENVIRON).warnings if "no server" not in line]


def test_the_mistakes_that_are_shown_are_said_so(tmp_path: Path) -> None:
    (shown,) = (block.text for block in blocks(PAGE) if block.language == "text")
    first = next(block.text for block in blocks(PAGE) if block.file == "portico.toml")
    path = tmp_path / "portico.toml"
    path.write_text(first.replace("command", "comand"))
    with pytest.raises(ConfigError) as caught:
        read(path, environ={})
    assert str(caught.value).replace(f"{tmp_path}/", "") + "\n" == shown


def _rows(text: str) -> dict[str, str]:
    """The keys of a page's tables, each with its default."""
    found = {}
    for keys, default in re.findall(r"^\| (`[^|]*`) \| ([^|]*)\|", text, re.MULTILINE):
        found.update(dict.fromkeys(re.findall(r"`(\w+)`", keys), default.strip().strip("`")))
    return found


@pytest.mark.parametrize(
    ("heading", "known", "table"),
    [
        ("Servers", SERVER, ServerEntry(name="x")),
        ("Components", COMPONENT, ComponentEntry(name="x")),
        (
            "Agents",
            readers(AgentEntry) | readers(AgentsDefaults),
            (AgentEntry(id="x"), AgentsDefaults()),
        ),
        ("Permissions of agents", readers(AgentPermissions), AgentPermissions()),
        ("Routing", readers(RoutingRule), RoutingRule(task_type="x", preferred_agents=())),
        ("The gateway", readers(Gateway) | readers(Search), (Gateway(), Search())),
        ("Tasks", readers(TaskSettings), TaskSettings()),
        ("Logins", readers(AuthSettings), AuthSettings()),
        (
            "Registries and trust",
            readers(RegistrySettings) | readers(TrustedKey),
            (RegistrySettings(), TrustedKey()),
        ),
    ],
)
def test_every_key_is_documented_with_its_default(
    heading: str, known: dict[str, Any], table: Any
) -> None:
    rows = _rows(section(PAGE, heading))
    assert set(rows) == set(known)
    defaults: dict[str, Any] = {}
    for one in table if isinstance(table, tuple) else (table,):
        defaults |= msgspec.structs.asdict(one)
    for key, default in rows.items():
        if default:
            assert msgspec.json.decode(default) == defaults[key], key


def test_what_is_inside_other_keys_is_documented_too() -> None:
    text = text_of(PAGE)
    for table in (Timeouts(), AgentTimeouts(), AgentPool(), AgentCallbacks(), Retention()):
        values = msgspec.structs.asdict(table).items()
        said = ", ".join(f"{key} = {_as_toml(value)}" for key, value in values if value is not None)
        assert f"`{{ {said} }}`" in text
    assert all(f"`{key}`" in text for key in (*PRESETS, *TOOL_KINDS))
    for kind in (Rerank, RateLimit):
        assert all(key in text for key in kind.__struct_fields__)


def _as_toml(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else msgspec.json.encode(value).decode()
