"""The config's gateway as a target: the running one, or one started for a single command.

The status of running ones: `console/running.py`. The command that serves: `serve.py`.
"""

import argparse
import asyncio
import os
import re
import sys
from typing import TYPE_CHECKING, Any

from portico.commands.console.argument_types import seconds, valued
from portico.commands.console.parser import Parser
from portico.commands.console.render import Screen
from portico.core.catalog.exposed_names import SEPARATOR
from portico.core.config.paths import config_file
from portico.core.documents.problems import ConfigError
from portico.core.model.errors import PorticoError

if TYPE_CHECKING:
    from portico.edge.client.client import Client
    from portico.upstream.wires.wire import Address

_STATUS = re.compile(r"(?<!['\w])gateway_status(?!['\w])")
"""The name of the tool, unless it is quoted."""


def add_options(parser: Parser) -> None:
    """Add the options of the commands that only query the gateway."""
    parser.add_config()
    what = "timeout for the gateway to start (default 30) and to respond (default 120)"
    valued(parser.add_argument, "--timeout", seconds, "SECONDS", what)
    parser.add_json()
    parser.set_defaults(era="auto", token="", token_file=None)


def address_of(options: argparse.Namespace) -> "Address":
    """The address of the config's gateway; ConfigError if the config is missing or invalid.

    The running gateway is used if the file is invalid, or if a value that it refers to is missing.
    """
    from portico.commands.console.running import owners
    from portico.core.config.read import read
    from portico.upstream.wires.child_wire import Command

    path = options.config or config_file()
    try:
        config = read(path)
    except ConfigError as error:
        return _running(path, error)
    if config.unresolved and owners(config.path)[1]:
        return _running(path, ConfigError(*config.unresolved))
    # -P: modules in the working directory must not be imported.
    command = (sys.executable, "-P", "-m", "portico", "serve", "--stdio", "--no-refresh")
    return Command((*command, "--config", config.path), title="the gateway")


def _running(path: str, error: ConfigError) -> "Address":
    """The address of the running gateway, which read a valid file or has the missing values;
    raise the error if none runs."""
    from portico import __version__
    from portico.commands.console.running import owners
    from portico.core.config.read import read
    from portico.edge.windows.owner_wire import OwnerAddress

    folder, found = owners(os.path.abspath(path))
    if not found:
        raise error
    processes = " and ".join(f"process {name.partition('.')[0]}" for name in found)
    try:
        read(path, only=())
        remedy = "set the variables above as for the gateway to use"
    except ConfigError:
        remedy = "fix the file, so that your variables select one of the gateways"
        if len(found) == 1:
            warn_broken(error, f"using the running gateway ({processes}) and its previous config")
    if len(found) > 1:
        raise PorticoError(
            f"{error}\n{processes} serve this config with different accounts: {remedy}"
        )
    return OwnerAddress(folder, found[0], __version__)


def warn_broken(error: ConfigError, instead: str) -> None:
    """Print the problems of the config file, and what is used in its place."""
    Screen(sys.stderr).print(f"portico: {error}\nportico: {instead}", "yellow")


async def query(client: "Client", tool: str, **arguments: Any) -> dict[str, Any]:
    """Call a meta-tool and return its result; PorticoError with its message if it fails."""
    result = await _request(client, tool, arguments)
    if result.get("isError") is True:
        content = result.get("content")
        blocks = content if isinstance(content, list) else []
        texts = [block.get("text") for block in blocks if isinstance(block, dict)]
        message = "\n".join(text for text in texts if isinstance(text, str))
        raise PorticoError(for_people(message) or f"{tool} failed without a message")
    return result


def for_people(text: str) -> str:
    """Return a text for models with a command in place of the tool that shows the servers."""
    return _STATUS.sub("`portico status`", text)


async def _request(client: "Client", tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Call a meta-tool, marked so that the gateway does not log it as a client's call."""
    from portico.gateway.endpoints.metatool_definitions import OWN_QUERY

    params = {"name": tool, "arguments": arguments, "_meta": {OWN_QUERY: True}}
    return await client.request("tools/call", params)


async def fetch_missing_lists(client: "Client", *wanted: str, reports: bool = True) -> None:
    """Have the gateway list servers that were never listed: the wanted ones, or else all but
    those that failed before, which may take long to fail again. `reports` prints their errors."""
    err = Screen(sys.stderr)
    servers = _servers(await query(client, "gateway_status", detail="full"))
    pending = [one for one in servers if one.get("pending")]
    if wanted:
        failed, new = [], [one["server"] for one in pending if one["server"] in wanted]
    else:
        failed = [one for one in pending if one.get("error")]
        new = [one["server"] for one in pending if not one.get("error")]
    if new:
        err.print(f"listing the tools of {', '.join(new)} for the first time ...", "dim")
        requests = (query(client, "refresh_tools", server=name) for name in new)
        await asyncio.gather(*requests)
        servers = _servers(await query(client, "gateway_status", detail="full"))
        failed += [one for one in servers if one["server"] in new and one["error"]]
    for one in failed if reports else ():
        err.print(f"portico: {one['error']}", "yellow")


async def definition(client: "Client", tool: str) -> tuple[dict[str, Any], bool]:
    """Return the definition of a tool, and True if the gateway had to refresh its lists to find it.

    Raises PorticoError with similar names if there is none.
    """
    result = await _request(client, "describe_tool", {"name": tool})
    is_new = result.get("isError") is True
    if is_new:
        await refresh_unknown(client, tool, reports=False)
        result = await query(client, "describe_tool", name=tool)
    return result["structuredContent"]["tools"][0]["definition"], is_new


async def refresh_unknown(client: "Client", *tools: str, reports: bool = True) -> None:
    """Refresh the servers of tools that the gateway does not know: its lists may be stale."""
    wanted = (tool.partition(SEPARATOR)[0] for tool in tools)
    await fetch_missing_lists(client, *wanted, reports=reports)
    requests = (_request(client, "describe_tool", {"name": tool}) for tool in tools)
    results = zip(tools, await asyncio.gather(*requests), strict=True)
    unknown = {tool.partition(SEPARATOR)[0] for tool, one in results if one.get("isError") is True}
    if not unknown:
        return
    servers = _servers(await query(client, "gateway_status", detail="full"))
    stale = [one["server"] for one in servers if one["server"] in unknown and not one["pending"]]
    await asyncio.gather(*(query(client, "refresh_tools", server=name) for name in stale))


def _servers(result: dict[str, Any]) -> list[dict[str, Any]]:
    return [*(result.get("structuredContent") or {}).get("servers", ())]
