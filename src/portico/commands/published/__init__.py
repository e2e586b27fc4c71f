"""Servers as their publishers describe them: the registry's server.json, and .mcpb bundles."""
