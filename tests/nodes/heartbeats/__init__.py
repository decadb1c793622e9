"""Heartbeats that are recorded together with those of other nodes."""
