"""The history of faults and repairs by serial number, also when hardware moves to another node."""
