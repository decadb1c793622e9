"""Load on the key-value store, and its checks."""
