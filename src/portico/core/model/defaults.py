"""The defaults that several parts of Portico share; each other one is in the module that uses it.

The limits of HTTP are in `http_limits.py` (edge) and `server_limits.py` (connections).
"""

INIT_S = 30.0
LIST_S = 30.0
CALL_S = 120.0
IDLE_S = 300.0
"""The timeouts of a server."""
MAX_IN_FLIGHT = 256
"""Concurrent calls at one server."""
MAX_CONNECTIONS = 128
"""Connections to a URL with a request in progress."""

DRAIN_S = 30.0
"""How long calls may take to finish after a shutdown began."""
NOTICE_S = 8.0
"""The time for load balancers to notice the shutdown, before the drain. haproxy's defaults take up
to 6 s to see that a server is not ready (3 checks, every 2 s)."""

TASKS_IN_PROGRESS = 100
"""Unfinished tasks of one client."""
KEPT_TASKS = 1000
MAX_KEPT_TASKS = 1_000_000
"""Finished tasks of one client, and how many a config may set."""
KEPT_DAYS = 30.0
"""How long a finished task is kept."""
LEASE_S = 15.0
"""How long a task of a process that was killed waits for another one."""

CACHE_MB = 256
"""The size limit of stored catalogs and indexes together; a large gateway needs a few megabytes."""
