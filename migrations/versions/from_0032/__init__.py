"""Revisions from 0032 on."""
