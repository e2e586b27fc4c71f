"""Tasks in the protocol: the link that makes calls tasks, its requests, the work of each task."""
