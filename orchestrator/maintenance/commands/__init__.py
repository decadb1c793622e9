"""Commands: one transaction per verb."""
