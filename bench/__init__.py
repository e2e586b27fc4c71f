"""Benchmarks of Portico, compared with peers and floors measured in the same run."""
