"""An HTTP/1.1 client and server; they import nothing else of Portico."""
