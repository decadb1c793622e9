"""Deploy systems: their identity, their tasks, and the agent that runs in them."""
