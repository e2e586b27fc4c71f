"""Tasks: stored, worked on, and offered to clients."""
