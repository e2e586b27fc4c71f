"""The terminal: output that is safe to print, results, tables, and forms to fill in."""
