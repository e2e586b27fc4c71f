"""The transports for clients: they turn bytes into requests, and responses into bytes.

Over HTTP a response leaves whole (`reply.py`), as events if it needs them (`events.py`), as events
that can be resumed (`resumable_stream.py`), or at the old transport's stream (`sse_endpoint.py`).
"""
