"""Wires: connections that carry messages to a server, over pipes or HTTP."""
