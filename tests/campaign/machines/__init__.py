"""Bare metal in a campaign: BMCs, machines, the agents of their site, tenants, operators, faults and checks."""
