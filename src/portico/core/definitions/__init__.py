"""Tools, resources and prompts as data: load, derive from functions, compile and check schemas."""
