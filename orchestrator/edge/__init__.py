"""The outermost layers of each listener: limits, idempotency gate, fast path, batching."""
