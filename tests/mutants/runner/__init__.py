"""Runs the tests that mutants name, and says what their outcomes mean."""
