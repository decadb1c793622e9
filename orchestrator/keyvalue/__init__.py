"""Keys and values, changed by transactions of the log."""
