"""The transports for clients: they turn bytes into requests, and responses into bytes."""
