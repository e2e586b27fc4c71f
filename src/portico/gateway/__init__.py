"""Many servers as one; and the applications behind `serve`, `wrap` and `run`."""
