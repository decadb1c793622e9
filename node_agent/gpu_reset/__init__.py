"""Reset of GPUs that are out of service: look, reset by the host's mechanism, and look again."""
