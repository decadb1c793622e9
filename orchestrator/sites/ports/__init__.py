"""Ports of machines at switches, and the segments of sites and tenants that they carry."""
