"""The local stack: real PostgreSQL, NATS and Temporal from their wheels, and every process of ours, on one machine."""
