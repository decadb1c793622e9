"""The agent's part of networks that span nodes."""
