"""`berth restore`: what follows a restore of PostgreSQL to an earlier moment, before anything is served."""
