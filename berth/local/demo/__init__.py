"""`berth demo`: real allocations through every component, each act checked, then a table and a report.

Each act states what it claims as named checks; the demo succeeds only if every one of them held.
"""
