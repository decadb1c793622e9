"""The consoles of a node's guests."""
