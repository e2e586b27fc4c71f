"""The contenders, each a program of its own that is given a file of tools."""
