"""The shared words. Nothing here imports anything else of Portico."""
