"""The command line: light at start, and as its page says."""
