"""Upstreams: sessions, connections, catalogs and the relay of calls; and a client of any server."""
