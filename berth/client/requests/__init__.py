"""Sending a request: credentials, idempotency keys, retries and the outcome of a write. No sockets in here."""
