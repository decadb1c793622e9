"""Three PostgreSQL servers under Patroni for `berth up --ha`."""
