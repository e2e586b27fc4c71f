"""Portico as the conformance suite drives a client: ours, through `portico wrap` before a URL.

    python tests/wrap/conformance_client.py (modern | legacy) [OPTION OF WRAP...] URL

The scenario is in the environment. The era is the one in which the client speaks to `wrap`.
"""

import asyncio
import contextlib
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

# Run as a script, Python looks for imports beside it and not at the root.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from portico.core.model.errors import McpError
from portico.edge.client.client import Client
from portico.edge.client.client_answers import ClientAnswers
from portico.edge.client.connect import connect
from portico.upstream.wires.child_wire import Command
from tests.upstream.connections.conformance_client import SCENARIOS, accept_defaults, roots, sample


async def complete(client: Client) -> None:
    """Send what is passed on: the scenario's server declares no tools, so `wrap` refuses calls."""
    argument = {"name": "city", "value": "pa"}
    ref = {"type": "ref/prompt", "name": "travel"}
    with contextlib.suppress(McpError):  # it has no such method either, but has seen the request
        await client.request("completion/complete", {"ref": ref, "argument": argument})


async def main(era: str, *words: str) -> None:
    """Play the scenario."""
    answers = ClientAnswers(elicit=accept_defaults, sample=sample, roots=roots)
    with TemporaryDirectory(prefix="portico-") as home:
        wrap = Command(
            (sys.executable, "-m", "portico", "wrap", *words),
            environment={**os.environ, "PORTICO_HOME": home},
        )
        async with await connect(wrap, answers=answers, era=era) as client:
            scenarios = {**SCENARIOS, "request-metadata": complete}
            await scenarios[os.environ["MCP_CONFORMANCE_SCENARIO"]](client)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
