"""The feed: one tail of the log per process, fanned out to its subscribers."""
