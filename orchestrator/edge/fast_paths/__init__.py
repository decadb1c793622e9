"""Short routes beside the framework, for the most frequent requests."""
