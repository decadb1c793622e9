"""The users of guests: what a process with one of them can do."""
