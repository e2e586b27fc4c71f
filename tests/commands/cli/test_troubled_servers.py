"""What a person reads of a server that hangs, exits, or cannot list one kind."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.observed import Window, portico
from tests.rigs.running import troubled
from tests.wrap.standing import until

pytestmark = pytest.mark.slow
_QUOTE = "last output:\n  "
_HANGING = "waiting for the database at db.local"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path


def config_of(home: Path, *troubles: str) -> Path:
    """A config with a server of each trouble, named after it."""
    path = home / "portico.toml"
    entries = []
    for trouble in troubles:
        command, *args = troubled(trouble)
        lines = f"command = {json.dumps(command)}\nargs = {json.dumps(args)}\n"
        entries.append(f"[servers.{trouble}]\n{lines}")
    path.write_text("".join(entries))
    return path


def statuses(home: Path, config: Path) -> dict[str, dict[str, Any]]:
    """The servers of the one gateway, or of its cached lists."""
    ran = portico(home, "status", "--json", "--config", str(config))
    (found,) = json.loads(ran.stdout)
    return {one["server"]: one for one in found["servers"]}


@pytest.mark.parametrize(
    "words",
    [("servers", "test", "hangs"), ("call", "hangs", "act"), ("inspect", "hangs")],
    ids=["test", "call", "inspect"],
)
def test_the_stderr_of_a_server_that_hangs_at_the_start_is_quoted(
    home: Path, words: tuple[str, ...]
) -> None:
    config = config_of(home, "hangs")
    ran = portico(home, *words, "--timeout", "2", "--config", str(config))
    assert ran.returncode == 1
    assert "within 2 s; last output:" in ran.stderr
    assert f"{_QUOTE}{_HANGING}\n" in ran.stderr


def test_the_stderr_of_a_server_that_hangs_in_a_call_is_quoted(home: Path) -> None:
    config = config_of(home, "stuck")
    ran = portico(home, "call", "stuck", "act", "--timeout", "2", "--config", str(config))
    assert ran.returncode == 1
    assert "did not answer tools/call within 2 s; last output:" in ran.stderr
    assert f"{_QUOTE}stuck on the lock of orders\n" in ran.stderr


def test_status_shows_the_last_line_of_a_server_that_exited_or_hung(home: Path) -> None:
    config = config_of(home, "exits", "hangs")
    with config.open("a") as file:
        file.write("timeouts = { init = 2 }\n")
    with Window(home) as window:
        window.ready()
        until(lambda: all(one["error"] for one in statuses(home, config).values()), "no errors")
        rows = portico(home, "status", "--config", str(config)).stdout.splitlines()
    (exited,) = [row for row in rows if row.startswith("  exits ")]
    (hung,) = [row for row in rows if row.startswith("  hangs ")]
    assert exited.endswith("exited with code 7: FATAL: no license key")
    assert hung.endswith(f"within 2 s: {_HANGING}")


def test_a_server_with_one_failing_list_is_not_broken(home: Path) -> None:
    config = config_of(home, "unlisted")
    ran = portico(home, "servers", "test", "--config", str(config))
    assert ran.returncode == 0
    assert "troubled 1.0  2025-06-18 (legacy) over stdio  1 tool, 0 resources, 0 prompts" in (
        ran.stdout
    )
    why = "unlisted failed to answer prompts/list: prompts/list is not possible"
    assert ran.stderr == f"portico: warning: {why}\n"


def test_a_server_of_which_no_list_can_be_read_is_broken(home: Path) -> None:
    config = config_of(home, "listless")
    ran = portico(home, "servers", "test", "--config", str(config))
    assert ran.returncode == 1
    assert "listless failed to answer tools/list: tools/list is not possible" in ran.stderr


def test_a_test_keeps_the_catalog_for_the_gateway(home: Path) -> None:
    config = config_of(home, "stuck")
    assert statuses(home, config)["stuck"]["pending"] is True
    assert portico(home, "servers", "test", "--config", str(config)).returncode == 0
    known = statuses(home, config)["stuck"]
    assert (known["pending"], known["tools"], known["starts"]) == (False, 1, None)
