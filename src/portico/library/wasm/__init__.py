"""Hosts WebAssembly components in sandboxed worker processes."""
