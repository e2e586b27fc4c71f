"""The `portico` command. It knows the names of its commands, and imports only the one that runs."""

import os
import sys
from collections.abc import Callable, Sequence
from io import TextIOWrapper
from typing import Any

from portico.core.model.errors import PorticoError, StartError

COMMANDS = {
    "wrap": ("cli.wrap", "serve one server, with its lists cached and failures restarted"),
    "serve": ("cli.serve", "serve all configured servers as one, with search tools"),
    "run": ("cli.run", "serve a Python file or a definitions file, over stdio or HTTP"),
    "call": ("cli.call", "call a tool of any MCP server and show its result"),
    "search": ("cli.search", "find tools of all configured servers"),
    "describe": ("cli.describe", "show the full definitions of configured servers' tools"),
    "inspect": ("cli.inspect", "show components: their tools, imports and rights"),
    "servers": ("cli.servers", "list, add, remove, test or refresh servers, or log in at them"),
    "new": ("authoring.new_command", "make a project for a component of your own"),
    "compose": ("authoring.compose_command", "write components to one file, a bundle"),
    "approve": ("authoring.approve_command", "allow the rights that a bundle needs"),
    "components": ("authoring.names_command:components", "give components short names"),
    "profiles": ("authoring.names_command:profiles", "give several components one name"),
    "init": ("setup.init_command", "start here: import servers, and add Portico to clients"),
    "import": ("setup.import_command", "import the servers of another client"),
    "install": ("setup.install_command", "write Portico's entry into a client's file"),
    "migrate": (
        "setup.migrate_command",
        "import a client's servers, and replace them there by Portico",
    ),
    "push": ("authoring.push_command", "push a component or a bundle to a registry"),
    "pull": ("authoring.pull_command", "pull components from registries, checked"),
    "key": ("authoring.key_command", "make a key to sign with, or list the trusted ones"),
    "agents": (
        "cli.agents",
        "show the configured agents and their quotas; explain which one a prompt would get",
    ),
    "delegate": ("cli.delegate", "hand a task to another agent, and follow it"),
    "tasks": ("cli.tasks", "list, follow, answer, cancel or resume long-running calls"),
    "status": ("cli.status", "show the state of gateways and of each server behind them"),
    "stop": ("cli.stop", "stop the gateway of a config, once its calls are done"),
    "doctor": ("cli.doctor", "check the whole setup, and show a remedy for each problem"),
    "logs": ("cli.logs", "show the gateway's log: calls, stderr, events"),
    "completion": ("cli.completion", "print a completion script for your shell"),
    "version": ("cli.version", "show the version of Portico"),
}
"""Each command's module in `portico.commands`, which has a `main(argv) -> int`, and its purpose;
`module:object` where one module has several commands."""

FAILED, USAGE, INTERRUPTED, PIPE_CLOSED = 1, 2, 130, 141


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit code."""
    arguments = sys.argv[1:] if argv is None else argv
    _reopen_closed_streams()
    _escape_unencodable()
    if argv is None and arguments[:1] and arguments[0] in COMMANDS:
        from portico.upstream.process.hardening import harden

        harden()  # before a child process exists that could read /proc
    code = _flushed(lambda: _run(arguments))
    _discard_unwritten()
    return code


def command(name: str, argv: Sequence[str], **more: Any) -> int:
    """Run one command from a user's program, with arguments that a command line cannot carry."""
    return embedded(lambda: module_of(name).main(list(argv), **more))


def embedded(run: Callable[[], int]) -> int:
    """Run a part of a user's program like a command: explain its failures, return the exit code."""
    _reopen_closed_streams()
    return _flushed(lambda: _explained(run))


def _flushed(run: Callable[[], int]) -> int:
    """Run a command and flush its output."""
    try:
        code = run()
        sys.stdout.flush()
    except BrokenPipeError:
        code = PIPE_CLOSED  # the reader of our output, such as `head`, has exited
    except OSError as error:  # such as a full disk behind `>`
        code = FAILED
        _print_error(error)
    return code


def _run(arguments: list[str]) -> int:
    if not arguments:
        print(_help(), file=sys.stderr)
        return USAGE
    name, *rest = arguments
    if name == "help" and rest:
        name, rest = rest[0], ["--help"]
    if name in ("-h", "--help", "help"):
        print(_help())
        return 0
    if name in ("-V", "--version"):
        from portico import __version__

        print(f"portico {__version__}")
        return 0
    if name not in COMMANDS:
        print(f"portico: {_unknown(name)}", file=sys.stderr)
        return USAGE
    return _explained(lambda: module_of(name).main(rest))


def module_of(name: str) -> Any:
    """Import the module of a command; one of several in a module is an object."""
    from importlib import import_module

    path, _, part = COMMANDS[name][0].partition(":")
    module = import_module(f"portico.commands.{path}")
    return getattr(module, part) if part else module


def _explained(run: Callable[[], int]) -> int:
    """Run a command; turn each failure that it can explain into one line and an exit code."""
    try:
        code = run()
    except PorticoError as error:
        from portico.commands.console.render import Screen

        Screen(sys.stderr).print(f"portico: {error}")
        if isinstance(error, StartError) and error.__cause__ is not None:
            from portico.commands.console.stderr import print_own_traceback

            print_own_traceback(error.__cause__)
        code = getattr(error, "exit_code", FAILED)
    except KeyboardInterrupt:
        return INTERRUPTED
    except SystemExit as done:  # from argparse (help, wrong usage), or from a user's file
        if done.code is None or isinstance(done.code, int):
            return done.code or 0
        print(done.code, file=sys.stderr)
        code = FAILED
    return code


def _reopen_closed_streams() -> None:
    """Open streams that the shell closed (`>&-`) on /dev/null, so that no other file gets their
    descriptors and no caller has to check for None."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            handle = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(handle, True)
            setattr(sys, name, os.fdopen(handle, mode, closefd=False))


def _escape_unencodable() -> None:
    """Escape characters that the stream's encoding lacks instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _print_error(error: OSError) -> None:
    from contextlib import suppress

    where = f"{error.filename}: " if error.filename else ""
    with suppress(OSError):
        print(f"portico: {where}{error.strerror or error}", file=sys.stderr)


def _discard_unwritten() -> None:
    """Drop unwritten output, so that Python does not fail again when it exits."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _help() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name.ljust(width)}  {purpose}" for name, (_, purpose) in COMMANDS.items()]
    return "\n".join(
        (
            "usage: portico COMMAND ...",
            "",
            "One doorway to every MCP server, component and agent.",
            "",
            *lines,
            "",
            "`portico COMMAND --help` lists the options of a command.",
        )
    )


def _unknown(name: str) -> str:
    from portico.core.model.wording import close_matches, did_you_mean, near_options

    if not name.startswith("-"):
        hint = did_you_mean(map(repr, close_matches(name, COMMANDS)))
        hint = hint or f"choose from {', '.join(COMMANDS)}"
        return f"there is no command {name[:40]!r}; {hint}"
    name = name.partition("=")[0]
    near = ["--version"] if name == "-v" else near_options(name, ("--help", "--version"))
    hint = did_you_mean(map(repr, near))
    after = "options come after a command, as in `portico serve --http 8000`"
    return f"there is no option {name[:40]!r}; {hint or after}"
