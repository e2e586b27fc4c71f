"""Claims tasks, renews their leases and finishes them."""
