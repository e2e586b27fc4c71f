"""`portico wrap` beside other proxies, all in front of one fast upstream."""

from bench import peers
from bench.report import Section
from bench.scale import Scale
from bench.tables import wrap_growth, wrap_stdio, wrap_web

HEADING = "Proxies with one upstream"

_ABOUT = (
    "Only the upstream's own row includes its process; all of Portico's rows include the guardian.",
    "Latencies are what a proxy adds to the upstream's own, which is in brackets. A row with "
    '"to HTTP" has an HTTP upstream, and includes that hop.',
    'mcp-compressor returns another, shorter list; its "list" is that one.',
)


def measure(scale: Scale) -> Section:
    """Everything about proxies, over stdio and HTTP."""
    versions = ", ".join(f"{peer.name} {peer.version}" for peer in peers.PEERS)
    section = Section(notes=[*_ABOUT, f"Peers: {versions}.", *peers.install()])
    for part in (wrap_stdio, wrap_web, wrap_growth):
        part.measure(scale, section)
    return section
