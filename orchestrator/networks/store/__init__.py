"""SQL of tenant networks: their leases, and the guests of those that span nodes."""
