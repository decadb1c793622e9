"""How many connections a listener may have."""
