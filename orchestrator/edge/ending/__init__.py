"""How the API ends: its listening sockets, and the order in which a process stops."""
