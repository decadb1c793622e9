"""Drivers of switches: what the agent of a site moves the ports of machines with."""
