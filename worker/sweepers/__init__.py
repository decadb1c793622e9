"""Sweepers: they look, now and then, for what nobody ended in time (P9). Each is bounded and may run anywhere, any number."""
