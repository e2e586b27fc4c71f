"""One file per table: each measures, and reports which budgets it met."""
