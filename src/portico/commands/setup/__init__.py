"""Moving in: servers imported from clients' files, Portico installed there, and both undone."""
