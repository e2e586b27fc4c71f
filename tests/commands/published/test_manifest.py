"""The manifest of a bundle becomes a config entry, with the values that a person gave."""

import json
import os
import sys
from typing import Any

import pytest

from portico.commands.published.manifest import read_manifest
from portico.commands.published.settings import PublishedError

Given = dict[str, tuple[str, ...]]


def entry(given: Given | None = None, *, settings: Any = None, **config: Any) -> dict[str, Any]:
    data = {
        "name": "demo",
        "version": "1.0",
        "server": {"type": "node", "entry_point": "i.js", "mcp_config": config},
        "user_config": settings or {},
    }
    return read_manifest(json.dumps(data).encode()).entry("/unpacked", given or {})


def test_variables_are_replaced_and_lists_become_several_arguments() -> None:
    settings = {
        "roots": {"type": "directory", "multiple": True, "default": ["${HOME}/a", "/b"]},
        "level": {"type": "number", "default": 3},
        "loud": {"type": "boolean"},
        "key": {"type": "string", "sensitive": True},
    }
    found = entry(
        {"key": ("${DEMO_KEY}",)},
        settings=settings,
        command="node",
        args=["${__dirname}${/}i.js", "--level=${user_config.level}", "${user_config.roots}"],
        env={"KEY": "${user_config.key}", "LOUD": "${user_config.loud}", "AT": "${DESKTOP}"},
    )
    home = os.path.expanduser("~")
    assert found == {
        "command": "node",
        "args": ["/unpacked/i.js", "--level=3", f"{home}/a", "/b"],
        "env": {"KEY": "${DEMO_KEY}", "AT": f"{home}/Desktop"},
        "cwd": "/unpacked",
    }


def test_this_platform_overrides_the_command() -> None:
    overrides = {sys.platform: {"command": "here"}, "other": {"command": "there"}}
    assert entry(command="x", args=["1"], platform_overrides=overrides)["command"] == "here"


def test_a_bundle_for_uv_needs_no_command() -> None:
    data = {"name": "demo", "server": {"type": "uv", "entry_point": "main.py"}}
    found = read_manifest(json.dumps(data).encode()).entry("/u", {})
    assert [found["command"], *found["args"]] == ["uv", "run", "--directory", "/u", "main.py"]


@pytest.mark.parametrize("stolen", ["${AWS_KEY}", "file:/etc/passwd", "keyring:github", "a ${X"])
@pytest.mark.parametrize("place", ["command", "args", "env", "default"])
def test_a_manifest_cannot_read_what_the_config_may_refer_to(stolen: str, place: str) -> None:
    config: dict[str, Any] = {"command": "node", "args": ["${user_config.x}"]}
    settings = {"x": {"type": "string", "default": stolen if place == "default" else "y"}}
    if place != "default":
        config[place] = {"command": stolen, "args": [stolen], "env": {"A": stolen}}[place]
    with pytest.raises(PublishedError, match="would read a variable, file or keyring entry"):
        entry(settings=settings, **config)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"{", "not valid JSON"),
        (b"[" * 100_000, "not valid JSON"),
        (b"\xff\xfe", "not valid JSON"),
        (b"[]", "must be an object"),
        (b"{}", "name must be a non-empty string"),
        (b'{"name": "x"}', "server.type must be"),
        (b'{"name": "x", "server": {"type": "java"}}', "is not one of node"),
        (b'{"name": "x", "server": {"type": "node"}}', "mcp_config.command must be"),
        (b'{"name": "x", "server": []}', "server must be an object"),
        (b'{"name": "x", "compatibility": {"platforms": ["beos"]}}', "is for .*beos.*, not for"),
        (
            b'{"name": "x", "server": {"type": "node", "mcp_config": {"command": "x", "args": 1}}}',
            "args must be an array",
        ),
        (
            b'{"name": "x", "server": {"type": "node"}, "user_config": {"a": {"type": "blob"}}}',
            "type .* is not one of string",
        ),
    ],
)
def test_a_malformed_manifest_is_explained(data: bytes, said: str) -> None:
    with pytest.raises(PublishedError, match=said):
        read_manifest(data)
