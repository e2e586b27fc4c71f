"""Upstreams: sessions, connections, catalogs and the relay of calls."""
