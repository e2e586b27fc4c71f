"""Decides about an agent's permission requests: pure functions over its policy.

Deny wins over `ask_about`, which wins over allow. A rule of deny applies if any path of the request
matches, a rule of allow only if all of them do. So nothing that is denied can be allowed.
"""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from portico.agents.lenient import fields, items, short, text, texts
from portico.config.agents_schema import AgentPermissions

Decision = Literal["allow", "ask", "deny"]
_STRICTEST: tuple[Decision, ...] = ("deny", "ask", "allow")

ALLOW_ONCE, ALLOW_ALWAYS = "allow_once", "allow_always"
REJECT_ONCE, REJECT_ALWAYS = "reject_once", "reject_always"
_KINDS = (ALLOW_ONCE, ALLOW_ALWAYS, REJECT_ONCE, REJECT_ALWAYS)

_PATH_KEYS = ("path", "file_path", "filePath", "abs_path", "absolute_path", "filename", "directory")
"""The names that agents use for paths in the raw input of a tool."""
MAX_PATHS = 100
"""The paths of a tool call that are looked at."""
_MAX_PATH = 4096
_PLAIN_IDS = ("proceed_once", "allow_once", "allow-once", "once", "allow")
"""Among several options of one kind, others may do more, such as switch the mode."""
_OTHER = "other"
"""The kind of a tool whose kind is not known."""
_GLOB = re.compile(r"[*?\[]")


class CallPath(Struct, frozen=True):
    """A path of a tool call: as the agent named it, and with links resolved; both absolute."""

    named: str
    real: str


class ToolCall(Struct, frozen=True):
    """The part of a permission request that decides about it."""

    kind: str
    title: str
    paths: tuple[CallPath, ...] = ()
    has_more_paths: bool = False
    """True if the request has further or longer paths than are looked at."""
    earlier_kind: str = ""
    """Its kind in an earlier update, which a request need not repeat."""


class KnownCall(Struct, frozen=True):
    """The content of earlier updates about a tool call."""

    kind: str = ""
    title: str = ""
    paths: tuple[str, ...] = ()


class PermissionOption(Struct, frozen=True):
    """One answer that the agent offers."""

    id: str
    name: str
    kind: str


def decide(policy: AgentPermissions, call: ToolCall, folder: str) -> Decision:
    """Return the decision about a tool call in this folder, an absolute path without links."""
    if call.earlier_kind not in ("", call.kind):
        kinds = (call.kind, call.earlier_kind)
        calls = (replace(call, kind=kind, earlier_kind="") for kind in kinds)
        return min((decide(policy, one, folder) for one in calls), key=_STRICTEST.index)
    if _touches(policy.deny, call, folder):
        return "deny"
    if _touches(policy.ask_about, call, folder):
        return "ask"
    if _covers(policy.allow, call, folder):
        return "allow"
    return _known(policy.default)


def pick(
    options: Sequence[PermissionOption], kinds: Iterable[str], preferred: Sequence[str] = ()
) -> PermissionOption | None:
    """Return the option of the first kind that is offered; never one of another kind."""
    ranked = (*preferred, *_PLAIN_IDS)
    for kind in kinds:
        offered = [option for option in options if option.kind == kind]
        if offered:
            return min(offered, key=lambda option: _rank(option.id, ranked))
    return None


def allowing(policy: AgentPermissions) -> tuple[str, ...]:
    """The kinds of options that allow, in the order of preference."""
    return (ALLOW_ONCE, ALLOW_ALWAYS) if policy.always else (ALLOW_ONCE,)


REJECTING = (REJECT_ONCE, REJECT_ALWAYS)
"""The kinds of options that reject, in the order of preference."""


def options_in(params: dict[str, Any]) -> list[PermissionOption]:
    """Return the options of a request; those without an id or of an unknown kind are left out."""
    found = []
    for item in map(fields, items(params.get("options"))):
        id, kind = text(item.get("optionId")), text(item.get("kind"))
        if id and kind in _KINDS:
            found.append(PermissionOption(id, short(item.get("name"), 100) or id, kind))
    return found


def is_allowed(params: dict[str, Any], result: Mapping[str, Any]) -> bool:
    """True if the answer to a permission request chose an option that allows it."""
    chosen = fields(result.get("outcome")).get("optionId")
    allowed = (option.id for option in options_in(params) if option.kind not in REJECTING)
    return chosen is not None and chosen in allowed


def paths_in(call: dict[str, Any]) -> list[str]:
    """Return all paths that a tool call names, each once."""
    locations = (fields(item).get("path") for item in items(call.get("locations")))
    contents = map(fields, items(call.get("content")))
    diffs = (item.get("path") for item in contents if item.get("type") == "diff")
    raw = fields(call.get("rawInput"))
    named = (raw.get(key) for key in _PATH_KEYS)
    return list(dict.fromkeys(path for path in texts((*locations, *diffs, *named)) if path))


def tool_call(call: dict[str, Any], folder: str, earlier: KnownCall | None = None) -> ToolCall:
    """Return the tool call of a request, with its paths resolved: this reads the file system."""
    known = earlier or KnownCall()
    paths = list(dict.fromkeys((*paths_in(call), *known.paths)))
    usable = [path for path in paths if len(path) <= _MAX_PATH][:MAX_PATHS]
    kind = text(call.get("kind"))
    earlier_kind = "" if known.kind == _OTHER else known.kind
    return ToolCall(
        kind=earlier_kind or _OTHER if kind in ("", _OTHER) else kind,
        title=short(call.get("title")) or known.title,
        paths=tuple(located(path, folder) for path in usable),
        has_more_paths=len(paths) > len(usable),
        earlier_kind=earlier_kind,
    )


def located(path: str, folder: str) -> CallPath:
    """Return a path that is relative to a folder, resolved."""
    named = os.path.normpath(os.path.join(folder, path))
    try:
        # Before normpath: `link/..` is the parent of the link's target.
        real = os.path.realpath(os.path.join(folder, path))
    except (OSError, ValueError):  # a NUL in the path
        real = named
    return CallPath(named, real)


def _touches(rules: Iterable[str], call: ToolCall, folder: str) -> bool:
    """True if a rule applies to any part of the call, in upper or lower case."""
    for kind, pattern in map(_parts, rules):
        if kind not in ("*", call.kind):
            continue
        if not pattern or call.has_more_paths:
            return True
        forms = {form.casefold() for path in call.paths for form in (path.named, path.real)}
        if any(matches(pattern.casefold(), form, folder.casefold()) for form in forms):
            return True
    return False


def _covers(rules: Iterable[str], call: ToolCall, folder: str) -> bool:
    """True if the rules apply to every part of the call."""
    patterns = [pattern for kind, pattern in map(_parts, rules) if kind in ("*", call.kind)]
    if "" in patterns:
        return True
    if not call.paths or call.has_more_paths:
        return False
    return all(any(matches(p, path.real, folder) for p in patterns) for path in call.paths)


def matches(pattern: str, path: str, folder: str) -> bool:
    """True if an absolute path matches a pattern; a relative one is for paths in the folder.

    `*` stays within a name, `**` does not. A pattern without a slash matches names at any depth;
    one without wildcards also matches everything below it.
    """
    if not pattern.startswith("/"):
        if path != folder and not path.startswith(folder.rstrip("/") + "/"):
            return False
        path = os.path.relpath(path, folder)
    if path == ".":
        return pattern in (".", "**", "*")
    return _regex(pattern).fullmatch(path) is not None


@lru_cache(1024)
def _regex(pattern: str) -> re.Pattern[str]:
    trimmed = pattern.removeprefix("./").rstrip("/") or pattern
    if trimmed in (".", "**"):
        return re.compile(r"(?s:.*)")
    below = "" if _GLOB.search(trimmed) else "(?:/.*)?"
    start = "" if "/" in trimmed else "(?:.*/)?"
    return re.compile(f"(?s:{start}{_translated(trimmed)}{below})")


def _translated(pattern: str) -> str:
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", pattern)
    meaning = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return "".join(meaning.get(part, re.escape(part)) for part in parts)


def _parts(rule: str) -> tuple[str, str]:
    kind, _, pattern = rule.partition(":")
    return kind.strip(), pattern.strip()


def _known(default: str) -> Decision:
    if default == "allow":
        return "allow"
    return "deny" if default == "deny" else "ask"


def _rank(id: str, ranked: Sequence[str]) -> int:
    return ranked.index(id) if id in ranked else len(ranked)
