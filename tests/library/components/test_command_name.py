"""The short name of a server's command."""

import shlex

import pytest

from portico.core.documents.names import is_valid_name
from portico.library.components.command_name import name_of_command, title_of_command


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("npx -y @scope/server-x@1.2", "x"),
        ("npx -y @modelcontextprotocol/server-everything", "everything"),
        ("npx -y @modelcontextprotocol/server-filesystem /home/me", "filesystem"),
        ("npx -p @scope/tools mcp-search", "search"),
        ("npx x", "x"),
        ("npx", "npx"),
        ("uvx mcp-server-git --repository .", "git"),
        ("uvx --from git+https://example.test/x mcp-server-x", "x"),
        ("uv run --directory /srv/weather server.py", "server"),
        ("uv --directory /srv tool run mcp-server-time==1.2", "time"),
        ("pipx run mcp-x==1.0", "x"),
        ("python -m pkg", "pkg"),
        ("python3.12 -W ignore -m mcp_server_time", "time"),
        ("python -c 'import secret_thing'", "python"),
        ("bash -c 'hunter2'", "bash"),
        ("sh ./start.sh", "start"),
        ("/path/to/node server.js", "server"),
        ("/usr/bin/node /opt/weather/dist/index.js stdio", "weather"),
        ("node dist/index.js", "index"),
        ("deno run -A jsr:@scope/server-notes", "notes"),
        ("bunx mcp-notes", "notes"),
        ("docker run -i --rm -e TOKEN=hunter2 mcp/github:1.2", "github"),
        ("docker run -i -e TOKEN -v /a:/b --name x ghcr.io/acme/server-maps@sha256:0a", "maps"),
        ("podman run -i --env-file .env acme/maps", "maps"),
        ("env TOKEN=hunter2 npx -y server-maps", "maps"),
        ("env", "env"),
        ("/opt/bin/my-server --token=hunter2", "my-server"),
        ("mcp-server-time --local-timezone Europe/Oslo", "time"),
        ("portico run calc.py --http 8000", "calc"),
        ("./größe", "gr-e"),
    ],
)
def test_a_command_is_named_after_its_server(command: str, name: str) -> None:
    found = name_of_command(shlex.split(command))
    assert found == name
    assert is_valid_name(found)


@pytest.mark.parametrize(
    ("command", "title"),
    [
        ("/usr/bin/node /opt/server/index.js stdio", "node index.js"),
        ("npx -y @scope/server-x@1.2 --token hunter2", "npx server-x@1.2"),
        ("docker run -e TOKEN=hunter2 mcp/github", "docker github"),
        ("python -c 'print(1/2)'", "python"),
        ("server --token hunter2", "server"),
        ("env TOKEN=hunter2 npx x", "env"),
        (f"python {'x' * 100}.py", f"python {'x' * 50}..."),
    ],
)
def test_a_title_has_no_other_arguments(command: str, title: str) -> None:
    assert title_of_command(shlex.split(command)) == title
