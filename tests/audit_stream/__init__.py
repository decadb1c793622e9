"""The stream of the audit: a real process, NATS, and receivers of syslog."""
