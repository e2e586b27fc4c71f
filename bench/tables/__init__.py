"""One file a table: each measures, and says which budgets it met."""
