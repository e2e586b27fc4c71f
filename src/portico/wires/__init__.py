"""Wires to servers: messages out and in, over the pipes of a child process or over HTTP."""
