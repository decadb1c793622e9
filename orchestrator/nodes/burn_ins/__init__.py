"""Burn-ins: which slots are tested, which report is a pass, and which slots return after one."""
