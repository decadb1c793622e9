"""Four eyes: requests of an operator that take effect when a second operator approves them."""
