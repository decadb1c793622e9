"""Settings of an agent, for the tests of what it refuses."""

from __future__ import annotations

from pathlib import Path

from node_agent.settings import Settings


def settings(directory: Path, **changes: object) -> Settings:
    """An agent with the driver libvirt."""
    values = {
        "api_url": "https://unused", "root_keys_file": directory / "unused", "agent_state_dir": directory / "agent",
        "agent_driver": "libvirt", **changes,
    }  # fmt: skip
    return Settings.model_validate(values)
