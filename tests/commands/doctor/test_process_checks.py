"""Gateways are compared by config and account, the servers of clients by their command lines."""

from pathlib import Path
from typing import Any

import pytest

from portico.commands.console.running import RunningPortico
from portico.commands.doctor.process_checks import check_clients, check_gateways


def gateway(pid: int, config: str = "/a.toml", **more: Any) -> RunningPortico:
    status = {"pid": pid, "config": config, "gateway": {"version": "1"}, "alone": True, **more}
    return RunningPortico(True, status)


@pytest.mark.parametrize(
    ("porticos", "count"),
    [
        ([gateway(1, alone=False)], 0),
        ([gateway(1, alone=False), gateway(2, alone=False)], 0),  # of two accounts
        ([gateway(1, alone=False), gateway(2)], 1),
        ([gateway(1), gateway(2), gateway(3)], 2),
        ([gateway(1), gateway(2, "/b.toml")], 0),
        ([gateway(1), RunningPortico(True, {"pid": 2, "server": "wrapped"})], 0),
        ([gateway(1), RunningPortico(True, {"pid": 2, "ok": False, "error": "busy"})], 0),
        ([gateway(1), RunningPortico(False, gateway(2).status)], 0),
    ],
)
def test_a_gateway_that_could_share_another_is_found(
    porticos: list[RunningPortico], count: int
) -> None:
    found = [one.fault for one in check_gateways(porticos, "1")]
    assert found == ["two-gateways"] * count


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    args = 'args = ["a", "${PORTICO_NOT_SET}"]'
    (tmp_path / "portico.toml").write_text(f'[servers.a]\ncommand = "npx"\n{args}\n')
    return tmp_path


def found_in(home: Path, file: str, text: str) -> list[str]:
    path = home / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return [one.fault for one in check_clients(str(home / "portico.toml"))]


SAME = '{"command": "/usr/bin/npx", "args": ["a", "${PORTICO_NOT_SET}"], "disabled": false}'


@pytest.mark.parametrize(
    ("file", "text", "found"),
    [
        (".mcp.json", f'{{"mcpServers": {{"x": {SAME}}}}}', ["client"]),
        (".vscode/mcp.json", f'{{"servers": {{"x": {SAME}, /* y */}}}}', ["client"]),
        (".mcp.json", f'{{"mcpServers": {{"x": {SAME.replace("false", "true")}}}}}', []),
        (".mcp.json", '{"mcpServers": {"x": {"command": "npx", "args": ["b"]}}}', []),
        (".mcp.json", '{"mcpServers": {"x": {"type": "carrier", "command": "npx"}}}', []),
        (".claude.json", '{"numStartups": 7, "projects": {}}', []),
        (".codex/config.toml", 'model = "o9"\n[servers]\nx = 1\n', []),
        (".codex/config.toml", "model = \n", ["client-file"]),
        (".gemini/settings.json", "[]", ["client-file"]),
        (".claude.json", " " * (4 * 1024 * 1024 + 1), []),
    ],
)
def test_a_clients_file_is_a_fault_only_if_it_starts_a_server_of_ours_or_is_damaged(
    home: Path, file: str, text: str, found: list[str]
) -> None:
    assert found_in(home, file, text) == found
