"""Deploy systems: small systems that a machine starts from virtual media between tenants; their identity and their tasks."""
