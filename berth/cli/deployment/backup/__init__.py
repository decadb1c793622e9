"""Backups of PostgreSQL: base backups, streamed WAL, proof by a restore into a scratch server, escrow of key files."""
