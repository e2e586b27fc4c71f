"""FastMCP as a proxy, as its documentation has it: `create_proxy`; a port first means HTTP."""

import sys

from fastmcp.client.transports import StdioTransport
from fastmcp.server import create_proxy

port, command, *arguments = sys.argv[1:]
proxy = create_proxy(StdioTransport(command, arguments), name="bench")
if port == "0":
    proxy.run(show_banner=False)
else:
    proxy.run("http", port=int(port), show_banner=False, log_level="warning")
