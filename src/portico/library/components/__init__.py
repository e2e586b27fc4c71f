"""Components: the units that a user composes into a server."""
