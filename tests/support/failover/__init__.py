"""PostgreSQL with standbys, for tests that lose the primary."""
