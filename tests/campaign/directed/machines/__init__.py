"""Directed scenes of machines: real commands, the BMC of the rack, and a disk that is a file."""
