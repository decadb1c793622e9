"""What a fleet of 50,000 nodes costs beside a small one: what is in use is seeded, and then everything is asked of it."""
