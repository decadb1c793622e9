"""Consumers of the log on JetStream: they start workflows and wake them, and only then acknowledge."""
