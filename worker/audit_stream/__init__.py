"""Sends the chain of the audit to NATS and syslog (docs/how-to/access/stream-the-audit.md)."""
