"""What audit rows state of requests: actions by route, and callers."""
