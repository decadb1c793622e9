"""What one boot of the deploy system does on its machine: inspect, deploy, wipe. `contract.py` has the types; nothing here talks to a server."""
