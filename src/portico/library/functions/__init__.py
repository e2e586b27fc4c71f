"""Providers: they own tools, resources, prompts or completions, and answer requests for them."""
