"""The audit record of operators' commands."""
