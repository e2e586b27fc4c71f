"""Files, background tasks, pending answers and reports, shared by all packages above."""
