"""Attacks on a listener and on its processes: each succeeds when the guard that it names is removed."""
