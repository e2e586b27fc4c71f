"""The side of clients: transports, windows, what fits a client; and a plain client."""
