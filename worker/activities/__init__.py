"""Activities: each runs exactly one command and returns its outcome as plain values."""
