"""Sends the chain of the audit to NATS and syslog (docs/how-to/stream-the-audit.md)."""
