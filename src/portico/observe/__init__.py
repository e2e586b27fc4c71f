"""What an operator can see: the log of calls, metrics, and what is left out of both."""
