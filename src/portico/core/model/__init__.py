"""The types that every package shares. Nothing here imports another package of Portico."""
