"""What Portico costs, beside peers and floors measured in the same run."""
