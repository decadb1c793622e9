"""Keys and certificates: who signs tasks, who vouches for nodes. Pure but for the key material it is given."""
