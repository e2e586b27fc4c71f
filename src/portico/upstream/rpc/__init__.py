"""JSON-RPC with a peer: pending requests, ids, timeouts, cancellation, dialects."""
