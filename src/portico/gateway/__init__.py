"""Many upstreams behind one endpoint: `portico serve`."""
