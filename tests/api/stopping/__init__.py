"""SIGTERM to the API: what clients see of it."""
