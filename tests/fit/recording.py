"""The first messages of a real client, kept as data: what names it, and what it asks for first.

`python -m tests.fit.recording CLIENT...` records anew.
"""

import asyncio
import json
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from tests.fit.real_clients import OUR_VARIABLES, REAL_CLIENTS, prompted, recorded
from tests.rigs.running import shelf
from tests.serve.gateway import command, serve_command, written
from tests.support.model_server import ModelServer, Script, model_server, says

FOLDER = Path(__file__).with_name("recordings")
TOOLS = 60
_LIST = "tools/list"
_NAMING = ("initialize", "server/discover", "notifications/initialized", _LIST)
"""The methods whose messages are compared: of the others some clients change the order."""
_VOLATILE = "progressToken"


class Recording(NamedTuple):
    """What a client sends first."""

    environment: list[str]
    """The names of the variables that it adds to those that it was started with."""
    messages: list[dict[str, Any]]
    """Its messages, up to the first that lists tools."""
    shown: list[str]
    """The names of the tools in the answer to that."""

    @property
    def naming(self) -> dict[str, Any]:
        """The params of the messages that name it, by their methods."""
        return {
            one["method"]: _stable(one.get("params"))
            for one in self.messages
            if one.get("method") in _NAMING
        }


def _stable(params: Any) -> Any:
    """Return params without the tokens that count calls."""
    if not isinstance(params, dict) or "_meta" not in params:
        return params
    meta = {key: value for key, value in params["_meta"].items() if key != _VOLATILE}
    return {**params, "_meta": meta}


def read_recording(folder: Path, added: frozenset[str]) -> Recording:
    """Read what the recorder wrote of the first conversation; `added` are our own variables."""
    names = (folder / "0.environment").read_text().split("\n")
    lines = (folder / "0.messages").read_text().splitlines()
    sent, shown, listing = [], [], None
    for line in lines:
        message = json.loads(line[1:])
        if line.startswith(">") and listing is None:
            sent.append(message)
            listing = message["id"] if message.get("method") == _LIST else None
        elif line.startswith("<") and listing is not None and message.get("id") == listing:
            shown = [tool["name"] for tool in message["result"]["tools"]]
            break
    return Recording(sorted({*names} - added), sent, shown)


def stored(client: str) -> Recording:
    """The recording of a client that is kept."""
    found = json.loads((FOLDER / f"{client}.json").read_text())
    return Recording(found["environment"], found["messages"], [])


def books(folder: Path) -> Path:
    """A config with one server of 60 tools."""
    names = folder / "books"
    names.write_text(" ".join(f"book-{number}" for number in range(TOOLS)))
    return written(folder / "portico.toml", {"mine": command(shelf(names))})


async def conversed(
    client: str, folder: Path, script: Script, prompt: str, *options: str
) -> tuple[Recording, ModelServer, str]:
    """Let a client answer a prompt behind `portico serve`: what it sent first, what its model was
    asked, and what it printed."""
    server = serve_command(folder / "portico", books(folder), *options)
    async with model_server(script) as model:
        said = await prompted(client, folder, model, recorded(folder / "record", server), prompt)
    return read_recording(folder / "record", OUR_VARIABLES), model, said


async def _record(client: str) -> None:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        found, _, _ = await conversed(client, Path(folder), {"HELLO": [says("Hi.")]}, "say HELLO")
    FOLDER.mkdir(exist_ok=True)
    kept = {"environment": found.environment, "messages": found.messages}
    (FOLDER / f"{client}.json").write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    for name in sys.argv[1:] or REAL_CLIENTS:
        asyncio.run(_record(name))
