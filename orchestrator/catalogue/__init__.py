"""The catalogue: regions, SKUs and images."""
