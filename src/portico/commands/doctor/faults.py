"""Every fault that doctor knows, with its remedy: one table for the command and its page."""

from collections.abc import Callable, Mapping

from msgspec import Struct, field


class Fault(Struct, frozen=True):
    """A kind of problem."""

    check: str
    title: str
    remedy: str
    """For a person; the names in braces are given with each finding."""


FAULTS: Mapping[str, Fault] = {
    "no-config": Fault(
        "config", "there is no config", "create it with `portico servers add NAME COMMAND`"
    ),
    "config": Fault("config", "the config has a mistake", "{remedy}"),
    "unresolved": Fault(
        "config", "a variable, file or secret that the config refers to is missing", "{remedy}"
    ),
    "writable-config": Fault(
        "permissions", "others can write to the config, or to code that it names", "{remedy}"
    ),
    "token": Fault(
        "permissions",
        "the token of Portico's HTTP endpoint is readable by others, or damaged",
        "delete {file} to create a new token, and update your clients",
    ),
    "no-folder": Fault(
        "permissions",
        "Portico cannot write to its state or cache folder",
        "make {folder} yours and writable, or set PORTICO_HOME to another folder",
    ),
    "no-command": Fault(
        "commands",
        "the command of a server is not installed, or not on the PATH",
        "install {command}, or correct the entry of {server} in the config",
    ),
    "broken-runtime": Fault(
        "commands",
        "a runtime that servers need does not work",
        "run `{command} --version`, and install it again if that fails, too",
    ),
    "login": Fault("logins", "a remote server needs a login", "run `{command}`"),
    "login-ends": Fault("logins", "the login at a remote server ends soon", "run `{command}`"),
    "unreachable": Fault(
        "servers",
        "a server does not start, or does not respond",
        "run `portico servers test {server}`; if it worked before, `portico logs` shows its stderr",
    ),
    "wrong-version": Fault(
        "protocol",
        "a server speaks no version of MCP that Portico supports",
        "update {server}, or whichever program it is meant to be",
    ),
    "old-transport": Fault(
        "protocol",
        "a server is reached over HTTP+SSE, which 2025-03-26 replaced",
        "give {server} its streamable HTTP URL, which often ends in /mcp",
    ),
    "old-gateway": Fault(
        "protocol",
        "a gateway of another version of Portico still runs",
        "run `portico stop --config {config}`; the next window starts the installed version",
    ),
    "old-catalog": Fault(
        "catalogs",
        "the stored lists of a server are old",
        "run `portico servers refresh {server}`",
    ),
    "low-disk": Fault("disk", "the disk is nearly full", "free some space on the disk of {folder}"),
    "drafts": Fault(
        "disk",
        "killed processes left unfinished files behind",
        "run `portico doctor --fix`, which removes them",
    ),
    "orphan": Fault(
        "orphans",
        "a server runs on although its Portico was killed",
        "run `portico doctor --fix`, which ends it",
    ),
    "client": Fault(
        "clients",
        "a client starts a server itself that Portico has, too",
        "remove {server} from {file}; the client reaches it through `portico serve`",
    ),
    "client-file": Fault(
        "clients", "the file of a client cannot be read", "correct {file}, or remove it"
    ),
    "two-gateways": Fault(
        "gateways",
        "a gateway runs alone beside another of the same config, with processes of its own",
        "start {process} without --alone, and its windows share the other gateway",
    ),
    "agent": Fault("agents", "an agent cannot be used", "run `portico agents test {agent}`"),
    "agent-login": Fault("agents", "an agent is not logged in", "{remedy}"),
}

CHECKS = (
    *("config", "permissions", "commands", "logins", "servers", "protocol", "catalogs"),
    *("disk", "orphans", "clients", "gateways", "agents"),
)
"""The checks, in the order in which they are shown."""


class Finding(Struct, kw_only=True):
    """One problem of this setup."""

    fault: str
    problem: str
    remedy: str
    fix: Callable[[], None] | None = field(default=None)
    """Removes the problem safely: nothing of the user is lost."""
    is_fixed: bool = False


def finding(
    fault: str, problem: str, fix: Callable[[], None] | None = None, **names: str
) -> Finding:
    """Return a problem with the remedy of its fault."""
    remedy = FAULTS[fault].remedy.format(**names)
    return Finding(fault=fault, problem=problem, remedy=remedy, fix=fix)


def from_message(fault: str, message: str, fix: Callable[[], None] | None = None) -> Finding:
    """Return a problem from a message of the form `what; remedy`."""
    what, _, remedy = message.partition("; ")
    return Finding(fault=fault, problem=what, remedy=remedy or f"correct {what[:80]}", fix=fix)
