"""The client's part about hardware: fault reports, and the methods of topologies, quarantines and faults."""
