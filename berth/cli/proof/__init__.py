"""Commands about proofs: wipe certificates."""
