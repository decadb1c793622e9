"""What a client does with the audit: recompute its chain, and write it in the form of OCSF."""
