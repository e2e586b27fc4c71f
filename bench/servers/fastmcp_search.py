"""Ask FastMCP's search, in its own environment: FOLDER LIMIT; prints ids and seconds as JSON."""

import asyncio
import json
import sys
import time
from pathlib import Path

from fastmcp.server.transforms.search import (
    BM25SearchTransform,
)
from fastmcp.tools.base import Tool


async def main(folder: Path, limit: int) -> None:
    """Name tools as FastMCP does when it mounts servers: the server, then the tool."""
    lines = (folder / "corpus.jsonl").read_text(encoding="utf-8").split("\n")
    tools = [_tool(json.loads(line)) for line in lines if line]
    asked = (folder / "queries.jsonl").read_text(encoding="utf-8").split("\n")
    queries = [json.loads(line)["query"] for line in asked if line]
    transform = BM25SearchTransform(max_results=limit)
    await transform._search(tools, "warm")
    started = time.perf_counter()
    found = [[tool.name for tool in await transform._search(tools, query)] for query in queries]
    seconds = (time.perf_counter() - started) / len(queries)
    json.dump({"found": found, "seconds": seconds}, sys.stdout)


def _tool(tool: dict[str, object]) -> Tool:
    # Not validated: some of these schemas break the rules, and search does not mind.
    schema = tool["inputSchema"]
    return Tool.model_construct(name=tool["id"], description=tool["description"], parameters=schema)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
