"""The edge out: a client of any MCP server."""
