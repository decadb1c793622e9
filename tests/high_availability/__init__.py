"""`berth up --ha`: three PostgreSQL servers under Patroni below a whole stack."""
