"""Tenant networks of a node: isolation, repair and crashes, on network namespaces and on real guests."""
