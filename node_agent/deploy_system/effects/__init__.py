"""What one boot of the deploy system does on its machine: inspect, deploy, wipe (types: `contract.py`)."""
