"""Findings about standbys of PostgreSQL: of those that confirm commits, and of those that serve reads."""
