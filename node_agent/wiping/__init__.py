"""Proof of wiping: what a node found about each device of a released allocation, and the statement that it signs."""
