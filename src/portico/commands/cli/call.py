"""`portico call`: call a tool of any MCP server and show its result."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from portico.commands.cli import gateway
from portico.commands.console.argument_types import pair, repeatable
from portico.commands.console.form import Form
from portico.commands.console.parser import Parser
from portico.commands.console.render import Screen, Ticker
from portico.commands.console.result import show_result
from portico.commands.console.target import add_options, address_of, component_of, open_client, run
from portico.core.definitions.wording import type_name
from portico.core.documents.names import is_valid_name
from portico.core.model.errors import McpError, PorticoError, TargetError
from portico.core.model.session import LOG_LEVELS
from portico.core.model.wording import close_matches, did_you_mean
from portico.library.components.aliases import ConfigAliases
from portico.library.components.classify import ComponentError, UnknownComponent, classify
from portico.upstream.wires.child_wire import Command

if TYPE_CHECKING:
    from portico.core.config.schema import ServerEntry
    from portico.edge.client.client import Client
    from portico.upstream.wires.wire import Address


_UNKNOWN = ("there is no tool ", "the tools of ")
"""How a gateway begins its answer for a tool that it does not know."""


class _CallFailed(PorticoError):
    """The call failed; the message explains why."""


def main(argv: list[str]) -> int:
    """Call one tool; 1 if it failed."""
    parser = _parser()
    options = parser.parse_intermixed_args(argv)
    _assign_words(parser, options)
    _check_text(parser, options.tool, *(word for pair in options.arg for word in pair))
    heard: list[str] = []
    if options.target is None:
        if options.header or options.token or options.token_file or options.env:
            parser.error(
                "--header, --token, --token-file and --env need a TARGET; for a configured "
                "server, set them in the config"
            )
        address, entry = gateway.address_of(options), None
    else:
        component = component_of(parser, options)
        if options.config and component.entry is None:
            parser.error("--config is for configured servers; remove it or the TARGET")
        address, entry = address_of(component, options), component.entry
        if isinstance(address, Command) and component.is_file and entry is None:
            address = replace(address, on_stderr=heard.append)
        if entry is not None and not entry.tools.allows(options.tool):
            raise _CallFailed(
                f"cannot call {options.tool}: the config filters it out "
                f"(servers.{entry.name}.tools)"
            )
    arguments = _parse_json(parser, options.arguments)
    try:
        return run(_call(address, options, arguments, entry))
    except TargetError as error:
        if not _is_in_config(options, entry):
            raise
        # The running gateway may have it; or a file has the name of a server.
        raise _CallFailed(
            f"{error}\n  through the gateway, run `portico call {options.target}__{options.tool}`"
        ) from None
    finally:
        _show_failure(options.tool, heard)


async def _call(
    address: "Address",
    options: argparse.Namespace,
    arguments: dict[str, Any],
    entry: "ServerEntry | None",
) -> int:
    err = Screen(sys.stderr)
    ticker = Ticker(err)

    def log(params: dict[str, Any]) -> None:
        data = params.get("data")
        text = data if isinstance(data, str) else msgspec.json.encode(data).decode()
        source = f" {params['logger']}" if isinstance(params.get("logger"), str) else ""
        ticker.clear()
        err.print(f"{params.get('level', 'log')}{source}: {text}", "dim")

    answers = Form(err, address.name, ticker).answers
    async with await open_client(address, options, entry, answers=answers, log=log) as client:
        if options.log_level or client.modern:
            await client.set_log_level(options.log_level or "info")
        call = await _call_params(client, options, arguments)
        try:
            raw = await client.request_raw("tools/call", call, progress=ticker.show)
            # The call comes first: links of the gateway see each further query, too.
            if options.target is None and _is_unknown(raw):
                ticker.clear()
                _, is_new = await gateway.definition(client, options.tool)
                if is_new:  # otherwise it is the tool's own answer
                    raw = await client.request_raw("tools/call", call, progress=ticker.show)
        except McpError as error:
            ticker.clear()
            await _check_name(client, options, error.message)
            more = "" if error.data is None else msgspec.json.encode(error.data).decode()[:2000]
            message = f"{options.tool} failed: {error.message} (code {error.code})"
            raise _CallFailed(f"{message}\n  {more}" if more else message) from None
        finally:
            ticker.clear()
        result = msgspec.json.decode(raw, type=dict[str, Any])
        failed = result.get("isError") is True
        if failed and options.target is not None:
            await _check_name(client, options)
        if options.json:
            Screen(sys.stdout).json(raw)
        else:
            show_result(result, Screen(sys.stderr if failed else sys.stdout), options.save)
        sys.stdout.flush()  # the server may take a while to exit
    return 1 if failed else 0


def _is_unknown(raw: bytes) -> bool:
    """True for the answer of a gateway that does not know the tool, or not yet."""
    result = msgspec.json.decode(raw, type=dict[str, Any])
    content = result.get("content") if result.get("isError") is True else None
    text = content[0].get("text") if isinstance(content, list) and content else None
    return isinstance(text, str) and text.startswith(_UNKNOWN)


def _show_failure(tool: str, heard: list[str]) -> None:
    """Show where a tool of the user's own file failed: the line, and the traceback."""
    begin = f"tools/call {tool} failed"
    for at in reversed(range(len(heard))):
        if heard[at].startswith(begin):
            Screen(sys.stderr).print("\n".join(heard[at:]), "dim")
            return


def _assign_words(parser: Parser, options: argparse.Namespace) -> None:
    """Tell TARGET, TOOL and JSON apart; without a TARGET, the config's gateway is used."""
    words = options.words
    if len(words) > 3:
        parser.error("too many arguments: expected TARGET TOOL JSON; quote the JSON")
    first = words[0]
    jsonlike = len(words) == 2 and words[1].lstrip()[:1] in ("{", "-")
    if len(words) == 1 or jsonlike:
        if "__" not in first and _is_target(first, options):
            parser.error(f"TOOL is missing after {first}: portico call TARGET TOOL [JSON]")
        words = [None, *words]
    elif len(words) == 2 and "__" in first and not _is_target(first, options):
        words = [None, *words]
    options.target, options.tool, options.arguments = (*words, None)[:3]
    if not options.tool.strip():
        parser.error("TOOL is empty; find one with `portico search`")


def _check_text(parser: Parser, *words: str) -> None:
    for word in words:
        try:
            word.encode()
        except UnicodeError:
            parser.error(f"{word!a} is not UTF-8")


def _is_target(word: str, options: argparse.Namespace) -> bool:
    """True for a component, and for one that is named wrongly: its error is shown later."""
    try:
        classify(word, ConfigAliases(options.config, quiet=True))
    except UnknownComponent:
        return False
    except ComponentError:
        return bool(word.strip())
    return True


def _is_in_config(options: argparse.Namespace, entry: "ServerEntry | None") -> bool:
    """True if the target may be a name in the config; a file's name, such as a.wasm, is not."""
    name = options.target
    if name is None or not is_valid_name(name):
        return False
    return entry is not None or name in ConfigAliases(quiet=True)


async def _call_params(
    client: "Client", options: argparse.Namespace, arguments: dict[str, Any]
) -> dict[str, Any]:
    """The params of `tools/call`, for the server itself or for the gateway in front of it."""
    arguments |= await _converted_args(client, options)
    call = {"name": options.tool, "arguments": arguments}
    if options.target is not None:
        return call
    if options.timeout is not None:
        call["timeout_s"] = options.timeout
    return {"name": "execute_tool", "arguments": call}


async def _check_name(client: "Client", options: argparse.Namespace, why: str = "") -> None:
    """Raise if the tool does not exist, which servers report in many ways; `why` is the report."""
    tool = options.tool
    if options.target is None:
        await gateway.definition(client, tool)
        return
    try:
        names = [item["name"] for item in await client.list_tools()]
    except PorticoError:
        return  # the failure at hand is the better one to report
    if tool not in names:
        raise _CallFailed(_unknown(client.name, tool, names, why))


def _unknown(server: str, tool: str, names: list[str], why: str = "") -> str:
    if not names:
        reported = f"\n  {why}" if why else ""
        return f"{server} has no tool {tool!r}; it has no tools{reported}"
    near = close_matches(tool, names, 3, 0.5) or [n for n in names if tool.lower() in n.lower()]
    if near:
        return f"{server} has no tool {tool!r}; {did_you_mean(near[:3])}"
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return f"{server} has no tool {tool!r}; it has {', '.join(names[:10])}{more}"


def _parse_json(parser: Parser, text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    try:
        if text == "-":
            text = sys.stdin.read()
        value: Any = msgspec.json.decode(text)
    except UnicodeError:
        parser.exit(2, "portico: the arguments are not JSON: not UTF-8\n")
    except (msgspec.DecodeError, RecursionError) as error:
        parser.exit(2, f"portico: the arguments are not JSON: {_where(text, str(error))}\n")
    if not isinstance(value, dict):
        parser.exit(2, 'portico: the arguments must be a JSON object, like {"city": "Rome"}\n')
    return value


def _where(text: str, problem: str) -> str:
    """Point at the character where the JSON becomes invalid."""
    import json

    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        line = text.split("\n")[error.lineno - 1].rstrip("\r")
        start = max(0, error.colno - 41)
        shown = line[start : error.colno + 39]
        arrow = " " * (error.colno - 1 - start) + "^"
        return f"{error.msg} at line {error.lineno}, column {error.colno}\n  {shown}\n  {arrow}"
    except RecursionError:
        pass
    return problem


async def _converted_args(client: "Client", options: argparse.Namespace) -> dict[str, Any]:
    """The `--arg` values, converted to the types in the tool's schema."""
    if not options.arg:
        return {}
    definition = await _definition(client, options)
    schema = definition.get("inputSchema")
    properties = schema.get("properties") if isinstance(schema, dict) else None
    known: dict[str, Any] = properties if isinstance(properties, dict) else {}
    return {name: _value(name, text, known.get(name)) for name, text in options.arg}


async def _definition(client: "Client", options: argparse.Namespace) -> dict[str, Any]:
    tool = options.tool
    if options.target is None:
        return (await gateway.definition(client, tool))[0]
    tools = {item["name"]: item for item in await client.list_tools()}
    if tool not in tools:
        raise _CallFailed(_unknown(client.name, tool, list(tools)))
    return tools[tool]


def _value(name: str, text: str, schema: Any) -> Any:
    kinds = _kinds(schema)
    if kinds == ["string"]:
        return text
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        if kinds and "string" not in kinds:
            raise _CallFailed(
                f"--arg {name} must be JSON of type {' or '.join(kinds)}, not {text[:80]!r}"
            ) from None
        return text
    kind = type_name(value)
    fits = kind in kinds or (kind == "integer" and "number" in kinds)
    return text if "string" in kinds and not fits else value


def _kinds(schema: Any) -> list[str]:
    """The types that a schema allows; empty if it does not list them plainly."""
    if not isinstance(schema, dict):
        return []
    several = schema.get("anyOf") or schema.get("oneOf")
    if isinstance(several, list):
        found = [_kinds(one) for one in several]
        return [kind for kinds in found for kind in kinds] if all(found) else []
    kind = schema.get("type")
    return [one for one in (kind if isinstance(kind, list) else [kind]) if isinstance(one, str)]


def _parser() -> Parser:
    parser = Parser(
        prog="portico call",
        usage="portico call [options] [TARGET] TOOL [JSON]",
        description="Call a tool of any MCP server and show its result. TARGET is a URL, "
        "server.py, tools.json, a quoted command or a configured server; without one, TOOL is a "
        "tool of the gateway, such as github__create_issue. JSON is its arguments; - reads them "
        "from stdin.",
        epilog="example: portico call 'npx -y @modelcontextprotocol/server-everything' "
        'echo \'{"message": "hello"}\'',
    )
    add = parser.add_argument
    add("words", nargs="+", metavar="[TARGET] TOOL [JSON]", help="see above")
    what = "one argument, converted to the type in the tool's schema"
    repeatable(add, "--arg", pair, "NAME=VALUE", what)
    what = "write images, audio and files of the result to this folder"
    add("--save", type=Path, metavar="DIR", help=what)
    what = f"lowest level of log messages to show: {', '.join(LOG_LEVELS)}"
    add("--log-level", choices=LOG_LEVELS, metavar="LEVEL", help=what)
    parser.add_config()
    add_options(parser)
    return parser
