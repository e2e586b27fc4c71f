"""Durable work: submitted, leased to a worker, finished once."""
