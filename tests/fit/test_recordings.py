"""The first messages of real clients, replayed at a real gateway with 60 tools."""

import json
from pathlib import Path

import pytest

from portico.core.config.client_exposure import KNOWN_CLIENTS, client_of_environment, known_client
from tests.fit.named_clients import NamedClient, window
from tests.fit.real_clients import REAL_CLIENTS
from tests.fit.recording import FOLDER, Recording, books, stored
from tests.wrap.talk import Pipes

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("serve-clients")]

SEARCHING = ("gemini", "opencode")
"""The clients that read every definition that they are given."""
_INFO = "io.modelcontextprotocol/clientInfo"


def info_in(recording: Recording) -> dict[str, str]:
    params = recording.messages[0]["params"]
    found: dict[str, str] = params.get("clientInfo") or params["_meta"][_INFO]
    return found


def replayed(client: Pipes, recording: Recording) -> list[str]:
    """Send the messages as they were; the tools of the list that the last of them requests."""
    for message in recording.messages:
        client.send(json.dumps(message).encode())
        # A client sends nothing more before its handshake is answered.
        if message["method"] in ("initialize", "server/discover"):
            client.result(json.dumps(message["id"]).encode())
    last = json.dumps(recording.messages[-1]["id"]).encode()
    return [tool["name"] for tool in json.loads(client.result(last))["tools"]]


def test_every_known_client_was_recorded() -> None:
    names = {one.name for one in KNOWN_CLIENTS}
    assert names == {*REAL_CLIENTS} == {path.stem for path in FOLDER.glob("*.json")}


@pytest.mark.parametrize("name", REAL_CLIENTS)
def test_the_table_names_each_client_as_it_names_itself(name: str) -> None:
    recording = stored(name)
    sent = info_in(recording)
    client = known_client(sent["name"])
    assert client is not None
    assert client.name == name
    assert client.defers(sent["version"]) == (name not in SEARCHING)
    assert {*client.variables} <= {*recording.environment}
    # Codex gives its servers no variables of its own.
    assert client_of_environment(recording.environment) == ("" if name == "codex" else name)


@pytest.mark.parametrize("name", REAL_CLIENTS)
def test_a_real_clients_first_messages_get_the_list_that_fits_it(name: str, tmp_path: Path) -> None:
    config, recording = books(tmp_path), stored(name)
    with window(tmp_path / "home", config, modern="initialize" not in recording.naming) as client:
        shown = replayed(client, recording)
        if name in SEARCHING:
            assert "search_tools" in shown
            assert len(shown) < 10
        else:
            assert sorted(shown) == sorted(f"mine__book-{number}" for number in range(60))


@pytest.mark.parametrize("name", [name for name in REAL_CLIENTS if name != "codex"])
def test_a_real_clients_environment_is_known_too(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in stored(name).environment:
        monkeypatch.setenv(variable, "1")
    with window(tmp_path / "home", books(tmp_path), modern=False) as client:
        named = NamedClient(client, {"name": "renamed", "version": "1"})
        assert named.searches == (name in SEARCHING)
