"""Answers to attestations on demand."""
