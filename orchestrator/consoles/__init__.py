"""Serial consoles of guests: sessions that join a tenant's connection with one that the node's agent opens."""
