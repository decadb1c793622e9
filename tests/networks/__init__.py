"""Leases of tenant networks: addresses, ports and subnets."""
