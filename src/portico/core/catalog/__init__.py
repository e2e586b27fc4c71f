"""Snapshots of all that providers offer, with their bytes ready to send."""
