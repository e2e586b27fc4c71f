"""Bundles: several components, with everything that they need, in one file."""
