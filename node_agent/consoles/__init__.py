"""Serial consoles of this node's guests: the agent connects to the API process that a signed task names, and pumps."""
