"""Commands about sites and BMCs."""
