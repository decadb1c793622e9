"""Commands about the fleet: maintenance windows."""
