"""Restores of the database to an earlier moment (docs/how-to/restore-from-backup.md)."""
