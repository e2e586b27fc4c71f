"""The protocol as pure functions: I/O, time and randomness are passed in."""
