"""The protocol, pure: no I/O, no clock, no randomness; those are handed in."""
