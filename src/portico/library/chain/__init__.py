"""Links, then providers, then the terminus: folded once, frozen, visible in one list."""
