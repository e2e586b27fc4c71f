"""The client of `call`, `inspect` and `server.test_client()`."""
