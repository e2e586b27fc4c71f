"""A client of HTTP/1.1; it imports nothing else of Portico."""
