"""The types of WIT: their values as JSON, checked, and moved to guests and back."""
