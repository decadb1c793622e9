"""Sites, their agents and BMCs."""
