"""Restores of the database to an earlier moment."""
