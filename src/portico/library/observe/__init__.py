"""The log of calls, metrics, and the redaction of both."""
