"""Interim: being replaced."""
