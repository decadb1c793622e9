"""Sites: agents on management hosts that reach the BMCs of machines, one at a time by a lease."""
