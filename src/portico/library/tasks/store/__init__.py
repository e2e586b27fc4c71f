"""Durable work, stored: submitted, leased to a worker, finished once."""
