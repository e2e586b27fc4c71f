"""An HTTP/1.1 client; it imports nothing else of Portico."""
