"""Attacks on running processes, by hostile clients of `benchmarks/attacks`, beside callers that must not notice them."""
