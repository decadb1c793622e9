"""Checks of a host before an agent runs on it: `python -m node_agent --check`."""
