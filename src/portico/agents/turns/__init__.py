"""Turns of agents, other programs that take over whole tasks: over ACP, or as plain commands."""
