"""Revisions from 0057 on."""
