"""Each client gets the catalog in the shape that serves it best."""
