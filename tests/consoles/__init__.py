"""Serial consoles."""
