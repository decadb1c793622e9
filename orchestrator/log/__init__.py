"""The log: events, their versions, readers, retention and dead letters."""
