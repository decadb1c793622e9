"""What operators run against a deployment's PostgreSQL, NATS and Temporal directly, without the API."""
