"""Images of guests on the node."""
