"""A server that sends clients to a page before it answers: by the error, as in 2025-11-25."""

from mcp.server.mcpserver import MCPServer
from mcp.shared.exceptions import UrlElicitationRequiredError
from mcp.types import ElicitRequestURLParams

server = MCPServer("pages", log_level="WARNING")
_sent: list[str] = []


@server.tool()
def files() -> str:
    """Answer clients that were sent to the page before."""
    if not _sent:
        _sent.append("visit-1")
        page = ElicitRequestURLParams(
            message="Please sign in", url="https://example.com/in", elicitation_id="visit-1"
        )
        raise UrlElicitationRequiredError([page])
    return "two files"


if __name__ == "__main__":
    server.run()
