"""`portico servers`: list, change and test servers, refresh running ones, log in at remote ones."""

import argparse

from portico.commands.console.parser import Parser
from portico.upstream.process.family import refuse_below_agent

_USAGE = """\
portico servers list [NAME] [--config FILE]
       portico servers add NAME [options] COMMAND [ARGS...]
       portico servers add NAME [options] URL
       portico servers add NAME --from FILE|URL [--set KEY=VALUE] [--yes]
       portico servers remove|enable|disable NAME [--config FILE]
       portico servers test [NAME] [--config FILE] [--timeout S]
       portico servers refresh [NAME] [--config FILE] [--timeout S]
       portico servers login NAME|URL [--scope S] [--no-browser] [--key] [--config FILE]
       portico servers logout NAME|URL [--config FILE]"""
_ACTIONS = {
    "list": "show the configured and the running servers",
    "add": "add a server to the config",
    "remove": "remove a server from the config",
    "enable": "enable a server",
    "disable": "disable a server, and keep its entry",
    "test": "start one server, or all enabled ones, and show what they offer",
    "refresh": "fetch the lists of running servers again",
    "login": "log in at a remote server, for all its uses here (agents have a login of their own)",
    "logout": "revoke the login at a remote server, and forget it",
}
_KINDS = ("npm", "pypi", "nuget", "oci", "mcpb", "remote")
_WITH_NAME = ("remove", "enable", "disable", "login", "logout")
_OPTION_ACTIONS = {
    **dict.fromkeys(("env", "header", "cwd", "tag", "disabled"), ("add",)),
    **dict.fromkeys(("source", "use", "set", "secrets", "yes"), ("add",)),
    **dict.fromkeys(("scope", "no_browser", "key"), ("login",)),
    "timeout": ("test", "refresh", "login"),
}


def main(argv: list[str]) -> int:
    """Run one action and return the exit code."""
    options = _options(argv)
    if options.action in ("list", "refresh"):
        from portico.commands.cli import servers_running

        return servers_running.main(options)
    if options.action == "test":
        from portico.commands.cli import servers_test

        return servers_test.main(options)
    refuse_below_agent(f"portico servers {options.action}")
    if options.action in ("login", "logout"):
        from portico.commands.cli import servers_login

        return servers_login.main(options)
    from portico.commands.cli import servers_edit

    return servers_edit.main(options)


def _options(argv: list[str]) -> argparse.Namespace:
    """Parse the command line, with `options.name` and `options.target` split."""
    parser = _parser()
    if not argv:
        parser.error(f"give an action: {', '.join(_ACTIONS)}")
    before, command = parser.split_command(argv, after=2)
    options: argparse.Namespace = parser.parse_intermixed_args(before)
    for option, actions in _OPTION_ACTIONS.items():
        if options.action not in actions and getattr(options, option):
            shown = "from" if option == "source" else option.replace("_", "-")
            parser.error(f"--{shown} works only with {' and '.join(actions)}")
    words = options.words
    options.name = words[0] if words else None
    options.target = words[1:] if command is None else command
    if options.action == "add":
        _check_add(parser, options, has_command=command is not None)
    elif command is not None or len(words) > 1:
        parser.error(f"{options.action} takes at most one NAME")
    elif options.action in _WITH_NAME and not words:
        parser.error(f"{options.action} needs the NAME of a server")
    return options


def _check_add(parser: Parser, options: argparse.Namespace, *, has_command: bool) -> None:
    target = options.target
    if options.source is not None:
        if not options.name or target or options.env or options.header or options.cwd:
            parser.error("--from takes a NAME, and --set instead of a command and its options")
        if options.secrets == "file":
            parser.error("--secrets file works only without --from")
        return
    for option in ("use", "set", "yes"):
        if getattr(options, option):
            parser.error(f"--{option} works only with --from")
    if not options.name or not target or not target[0]:
        parser.error("add needs a NAME, and COMMAND ARGS... or a URL")
    if has_command:
        if len(options.words) > 1:
            parser.error("give either a URL or a COMMAND, not both")
        if options.header:
            parser.error("--header is for URLs; a command takes --env")
        return
    if len(target) > 1:
        parser.error("give one URL")
    if options.env or options.cwd:
        parser.error("--env and --cwd are for commands; a URL takes --header")


def _parser() -> Parser:
    from portico.commands.console.argument_types import header, pair, repeatable, seconds, valued

    width = max(map(len, _ACTIONS))
    parser = Parser(
        prog="portico servers",
        usage=_USAGE,
        description="List, change and test the configured servers, refresh running ones, and "
        "log in at remote ones.",
        epilog="\n".join(
            ("actions:", *(f"  {action.ljust(width)}  {what}" for action, what in _ACTIONS.items()))
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("action", choices=tuple(_ACTIONS), metavar="ACTION", help=f"one of {', '.join(_ACTIONS)}")
    add("words", nargs="*", metavar="NAME", help="the server; for add also its URL")
    parser.add_config()
    parser.add_json()
    what = "timeout of refresh (default 90) and login (600), or for each server in test"
    valued(add, "--timeout", seconds, "S", what)
    new = parser.add_argument_group("for add").add_argument
    what = "a variable for a command; a secret is stored as ${K}"
    repeatable(new, "--env", pair, "K=V", what)
    repeatable(new, "--header", header, "'K: V'", "a header for a URL")
    new("--cwd", metavar="FOLDER", help="working directory of a command")
    repeatable(new, "--tag", str, "TAG", "a tag to find the server by")
    what = "a server.json of the MCP registry, or an .mcpb bundle: a file or a URL"
    new("--from", dest="source", metavar="SOURCE", help=what)
    what = "with --from: the package to use of several (npm, pypi, nuget, oci, mcpb) or remote"
    new("--use", choices=_KINDS, metavar="KIND", help=what)
    repeatable(
        new, "--set", pair, "KEY=VALUE", "with --from: the value of one of the server's settings"
    )
    what = "secrets become variables (env), or go to a file of yours or the keyring"
    new("--secrets", choices=("env", "file", "keyring"), help=what)
    new("--yes", action="store_true", help="with --from: add what is shown, without a question")
    new("--disabled", action="store_true", help="add the server disabled")
    login = parser.add_argument_group("for login").add_argument
    repeatable(login, "--scope", str, "S", "a scope to request instead of the server's own")
    login("--no-browser", action="store_true", help="print the page's URL, and open no browser")
    what = "store a plain token or key, which you type without an echo"
    login("--key", action="store_true", help=what)
    return parser
