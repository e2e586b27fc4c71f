"""`portico wrap` beside other proxies, all in front of one fast upstream."""

from bench import peers
from bench.report import Section
from bench.scale import Scale
from bench.tables import wrap_growth, wrap_stdio, wrap_web

HEADING = "Proxies with one upstream"

_ABOUT = (
    "The upstream's own process is in no figure but its own row's; Portico's guardian is in all of "
    "Portico's.",
    'Latencies are added to those of the upstream itself, whose own are in brackets; "to HTTP" has '
    "an HTTP upstream, whose hop is in its row too.",
    'mcp-compressor answers another, shorter list; its "list" is that one.',
)


def measure(scale: Scale) -> Section:
    """Everything about proxies, over stdio and HTTP."""
    versions = ", ".join(f"{peer.name} {peer.version}" for peer in peers.PEERS)
    section = Section(notes=[*_ABOUT, f"Peers: {versions}.", *peers.install()])
    for part in (wrap_stdio, wrap_web, wrap_growth):
        part.measure(scale, section)
    return section
