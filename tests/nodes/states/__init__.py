"""The states of nodes: legal transitions, what is shown, drains."""
