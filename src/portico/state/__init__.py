"""The small ports and their adapters."""
