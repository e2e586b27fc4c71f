"""Edges in: bytes to requests and back. A transport decides nothing."""
