"""The types of the public API: what bodies must look like, and what answers do."""
