"""The JetStream consumer of the log: starts and signals workflows, then acknowledges."""
