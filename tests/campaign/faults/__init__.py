"""How each kind of fault begins and ends."""
