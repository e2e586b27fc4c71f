"""Config files as text: parsed with the place of each value, edited in place, saved."""
