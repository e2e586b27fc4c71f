"""The commands of `portico`, and the terminal."""
