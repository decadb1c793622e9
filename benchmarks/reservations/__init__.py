"""Benchmarks of reservations under load: holds of future windows, and many clients on one node."""
