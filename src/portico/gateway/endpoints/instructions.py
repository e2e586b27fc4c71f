"""The instructions of a gateway: its servers first, then how to use their tools.

They contain no text of a server: a model trusts them as Portico's own.
"""

MAX_BYTES = 2_048
"""Some clients cut longer instructions."""
_SEARCH = (
    "Call search_tools to find a tool for what you need, then the tool in its `call` "
    "(execute_tool or, if it is read-only, execute_read_tool) with its name and arguments; "
    "describe_tool returns its full definition."
)
_ALL = "Each tool is named SERVER__TOOL, after its server."


def merged_instructions(summary: str, *, searches: bool) -> str:
    """Return the instructions for a summary of the servers, within the limit."""
    how = _SEARCH if searches else _ALL
    begin, end = "Portico connects these MCP servers: ", f". {how}"
    room = MAX_BYTES - len(begin) - len(end)
    return f"{begin}{_cut(summary, room)}{end}"


def _cut(summary: str, room: int) -> str:
    """Return a summary within this many bytes, cut after a whole server."""
    data = summary.encode()
    if len(data) <= room:
        return summary
    more = " and more"
    kept = data[: room - len(more)].decode(errors="ignore")
    return f"{kept[: kept.rfind(', ')] if ', ' in kept else kept}{more}"
