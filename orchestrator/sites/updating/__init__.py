"""Updates of firmware through BMCs: what became of one, and what the next release compares with."""
