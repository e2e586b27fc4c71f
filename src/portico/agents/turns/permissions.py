"""Decides about an agent's permission requests: pure functions over its policy.

Deny wins over `ask_about`, which wins over allow. A rule of deny applies if any path of the request
matches, a rule of allow only if all of them do. So nothing that is denied can be allowed. A request
that may concern a denied path, such as one that names no path, is not allowed without a question.
"""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from portico.agents.turns.call_paths import CallPath, NamedPaths, all_located, located, paths_in
from portico.agents.turns.called_tool import called_tool
from portico.agents.turns.lenient import excerpt, fields, items, text
from portico.core.config.agents_schema import AgentPermissions
from portico.core.protocol.codec import encode_escaped

Decision = Literal["allow", "ask", "deny"]
_STRICTEST: tuple[Decision, ...] = ("deny", "ask", "allow")

ALLOW_ONCE, ALLOW_ALWAYS = "allow_once", "allow_always"
REJECT_ONCE, REJECT_ALWAYS = "reject_once", "reject_always"
ANSWERS = {
    ALLOW_ONCE: ("yes", "Allow once"),
    ALLOW_ALWAYS: ("always", "Always allow"),
    REJECT_ONCE: ("no", "Reject"),
    REJECT_ALWAYS: ("never", "Always reject"),
}
"""The answers to a question by kind, in our words: an agent may give its options any name."""
MAX_ARGUMENTS = 4000
"""The characters of a call's input that are shown whole."""

_PLAIN_IDS = ("proceed_once", "allow_once", "allow-once", "once", "allow")
"""Among several options of one kind, others may do more, such as switch the mode."""
OTHER = "other"
"""The kind of a tool whose kind is not known."""
_WILDCARD = re.compile(r"[*?]")
_EXECUTE = "execute"
"""The kind of commands, which can use any path without naming it to us."""
_OF_WHOLE_FOLDERS = ("delete", "move", "search")
"""The kinds of tools that concern everything below the path that they name."""


class ToolCall(Struct, frozen=True):
    """The part of a permission request that decides about it."""

    kind: str
    title: str
    paths: tuple[CallPath, ...] = ()
    has_more_paths: bool = False
    """True if the request has further or longer paths than are examined."""
    earlier_kind: str = ""
    """Its kind in an earlier update, which a request need not repeat."""
    tool: str = ""
    """The agent's own name of the tool; empty if it is not known."""
    arguments: str = ""
    """The raw input of the tool, for people."""


class KnownCall(Struct, frozen=True):
    """The content of earlier updates about a tool call."""

    kind: str = ""
    title: str = ""
    paths: NamedPaths = NamedPaths()
    tool: str = ""
    arguments: str = ""


class PermissionOption(Struct, frozen=True):
    """One answer that the agent offers."""

    id: str
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
    decision = "allow" if _covers(policy.allow, call, folder) else _known(policy.default)
    if decision == "allow" and _may_touch((*policy.deny, *policy.ask_about), call, folder):
        return "ask"
    return decision


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
    """Return the options of a request; those without an id or of an unknown kind are left out.

    If two have one id, there are none: the agent could take either for the answer.
    """
    given = [fields(item) for item in items(params.get("options"))]
    found = [PermissionOption(text(one.get("optionId")), text(one.get("kind"))) for one in given]
    ids = [option.id for option in found if option.id]
    if len(set(ids)) < len(ids):
        return []
    return [option for option in found if option.id and option.kind in ANSWERS]


def is_allowed(params: dict[str, Any], result: Mapping[str, Any]) -> bool:
    """True if the answer to a permission request chose an option that allows it."""
    chosen = fields(result.get("outcome")).get("optionId")
    allowed = (option.id for option in options_in(params) if option.kind not in REJECTING)
    return chosen is not None and chosen in allowed


def tool_call(call: dict[str, Any], folder: str, earlier: KnownCall | None = None) -> ToolCall:
    """Return the tool call of a request, with its paths resolved: this reads the file system."""
    known = earlier or KnownCall()
    found = paths_in(call).joined(known.paths)
    kind = text(call.get("kind"))
    earlier_kind = "" if known.kind == OTHER else known.kind
    return ToolCall(
        kind=earlier_kind or OTHER if kind in ("", OTHER) else kind,
        title=excerpt(call.get("title")) or known.title,
        paths=tuple(all_located(found.paths, folder)),
        has_more_paths=found.has_more,
        earlier_kind=earlier_kind,
        tool=known.tool or called_tool(call),
        arguments=arguments_text(call) or known.arguments,
    )


def arguments_text(call: dict[str, Any]) -> str:
    """Return the raw input of a tool call on one line; empty if it has none."""
    raw = call.get("rawInput")
    return excerpt(encode_escaped(raw).decode(), MAX_ARGUMENTS) if raw else ""


def resolved(policy: AgentPermissions, folder: str) -> AgentPermissions:
    """Return a policy whose denials also cover the targets of links: this reads the file system.

    An allowance is not extended: a link that an agent creates would widen it.
    """
    return replace(
        policy,
        deny=_with_targets(policy.deny, folder),
        ask_about=_with_targets(policy.ask_about, folder),
    )


def _with_targets(rules: tuple[str, ...], folder: str) -> tuple[str, ...]:
    found = list(rules)
    for kind, pattern in map(_parts, rules):
        base = _base(pattern)
        if not base:
            continue
        place = located(base, folder)
        if place.real != place.named:
            found.append(f"{kind}:{place.real}{pattern.removeprefix(base)}")
    return tuple(dict.fromkeys(found))


def _touches(rules: Iterable[str], call: ToolCall, folder: str) -> bool:
    """True if a rule applies to any part of the call, in upper or lower case."""
    for pattern in _patterns(rules, call.kind):
        if not pattern or call.has_more_paths:
            return True
        folded, inside = pattern.casefold(), folder.casefold()
        forms = _forms(call)
        if any(matches(folded, form, inside) for form in forms):
            return True
        if folded.endswith("/**") and _place(folded, inside) in forms:
            return True  # `secrets/**`, and the call is about the folder `secrets`
    return False


def _may_touch(rules: Iterable[str], call: ToolCall, folder: str) -> bool:
    """True if the call may concern the paths of a rule, though none that it names matches."""
    patterns = _patterns(rules, call.kind)
    if not patterns:
        return False
    if not call.paths or call.kind == _EXECUTE or any(map(_WILDCARD.search, _forms(call))):
        return True
    if call.kind not in _OF_WHOLE_FOLDERS:
        return False
    places = [_place(pattern.casefold(), folder.casefold()) for pattern in patterns]
    above = tuple(form.rstrip("/") + "/" for form in _forms(call))
    return any(f"{place}/".startswith(above) for place in places if place)


def _forms(call: ToolCall) -> set[str]:
    return {form.casefold() for path in call.paths for form in (path.named, path.real)}


def _place(pattern: str, folder: str) -> str:
    """Return the folder that contains everything a pattern matches; empty if it is not known."""
    base = _base(pattern)
    return os.path.normpath(os.path.join(folder, base)) if base else ""


def _base(pattern: str) -> str:
    """Return the part of a pattern before its wildcards; empty for a name at any depth."""
    if "/" not in pattern:
        return ""
    names = pattern.split("/")
    wild = next((n for n, name in enumerate(names) if _WILDCARD.search(name)), len(names))
    return "/".join(names[:wild])


def _patterns(rules: Iterable[str], kind: str) -> list[str]:
    """Return the patterns of the rules for a kind of tool; empty ones are for all its calls."""
    return [pattern for one, pattern in map(_parts, rules) if one in ("*", kind)]


def _covers(rules: Iterable[str], call: ToolCall, folder: str) -> bool:
    """True if the rules apply to every part of the call."""
    patterns = _patterns(rules, call.kind)
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
    below = "" if _WILDCARD.search(trimmed) else "(?:/.*)?"
    start = "" if "/" in trimmed else "(?:.*/)?"
    return re.compile(f"(?s:{start}{_translated(trimmed)}{below})")


def _translated(pattern: str) -> str:
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", pattern)
    meaning = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return "".join(meaning.get(part, re.escape(part)) for part in parts)


def _parts(rule: str) -> tuple[str, str]:
    kind, _, pattern = rule.partition(":")
    written = pattern.strip()
    if not written:
        return kind.strip(), ""
    path = os.path.normpath(os.path.expanduser(written))
    return kind.strip(), "/" + path.lstrip("/") if path.startswith("/") else path


def _known(default: str) -> Decision:
    if default == "allow":
        return "allow"
    return "deny" if default == "deny" else "ask"


def _rank(id: str, ranked: Sequence[str]) -> int:
    return ranked.index(id) if id in ranked else len(ranked)
