"""Commands of sites: one transaction per verb."""
