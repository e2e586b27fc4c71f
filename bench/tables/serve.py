"""`portico serve`: the gateway with twenty servers and 6,000 tools behind it."""

from contextlib import ExitStack

from bench.gateway import SERVERS, TOOLS, Fleet, spread, with_echo
from bench.peers import FASTMCP, install
from bench.process import Workspace
from bench.report import Section
from bench.scale import Scale
from bench.tables import serve_calls, serve_clients, serve_refresh, serve_search, serve_start
from bench.workload import CATALOG

HEADING = "The gateway"

_ABOUT = (
    f"The gateway leads to {SERVERS} servers with {TOOLS:,} real tools together; the servers' own "
    "processes are in no figure but that of the row of the upstream itself.",
    "CPU and memory at the start are those of the gateway's process; later they include its "
    "guardian, as for `wrap`.",
    "Calls go to one server's echo. A budget for what the gateway adds covers all of its CPU.",
    f"FastMCP {FASTMCP.version} is its `create_proxy` in front of one server, as for `wrap`.",
)


def measure(scale: Scale) -> Section:
    """Start and memory, search, calls, many clients, and the time of a refresh."""
    if not CATALOG.is_file():
        return Section(notes=[f"left out: {CATALOG.name} is not there"])
    section = Section(notes=[*_ABOUT, *install()])
    with ExitStack() as stack:
        fleet = Fleet(stack.enter_context(Workspace()), with_echo(spread(TOOLS, SERVERS)))
        fleet.fill()
        for part in (serve_start, serve_search, serve_calls, serve_clients):
            part.measure(fleet, scale, section)
        serve_refresh.measure(scale, section)
    return section
