"""The client's part about hardware: fault reports, serial numbers, topologies, quarantines."""
