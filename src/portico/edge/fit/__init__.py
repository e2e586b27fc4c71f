"""Each client gets the endpoint that serves it best."""
