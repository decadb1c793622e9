"""How long the journal of an agent keeps what it has reported."""
