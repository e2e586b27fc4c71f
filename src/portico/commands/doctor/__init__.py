"""`portico doctor`: the checks of a whole setup, each made of those that other commands use."""
