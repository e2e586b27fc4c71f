"""One gateway for all windows of a client: its owner, the windows, and how they find each other."""
