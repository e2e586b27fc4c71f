"""The state of a call that waits for a login, as its client keeps it."""

LOGIN_STATE = b"portico-login-1."
"""Begins it; all other states belong to the server."""
