"""The agent's file of switches: what it takes, and what it refuses by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from node_agent.switches.contract import SwitchUnknown
from node_agent.switches.linux_bridge import LinuxBridge
from node_agent.switches.listed import FILE_BYTES_MAX, find_switch, read_switches
from node_agent.switches.noop import NoopSwitch


def written(directory: Path, content: Any) -> Path:
    path = directory / "switches.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_switches_are_read_by_name(tmp_path: Path) -> None:
    listed = {
        "leaf-1": {"driver": "noop"},
        "lab": {"driver": "linux_bridge", "bridge": "br0", "namespace": "lab"},
        "old": {"driver": "linux_bridge", "bridge_prefix": "seg"},
    }
    found = read_switches(written(tmp_path, listed))
    assert isinstance(found["leaf-1"], NoopSwitch)
    assert found["lab"] == LinuxBridge("br0", None, "lab")
    assert found["old"] == LinuxBridge(None, "seg", None)
    assert find_switch(found, "lab") is found["lab"]
    with pytest.raises(SwitchUnknown, match="leaf-9"):
        find_switch(found, "leaf-9")


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("{", "JSON"),
        ([], "switches: "),
        ({"leaf": {"driver": "sonic"}}, "leaf"),
        ({"leaf": {}}, "leaf"),
        ({"LEAF": {"driver": "noop"}}, "LEAF"),
        ({"leaf": {"driver": "noop", "bridge": "b"}}, "leaf.noop.bridge"),
        ({"leaf": {"driver": "linux_bridge"}}, "bridge_prefix"),
        ({"leaf": {"driver": "linux_bridge", "bridge": "b", "bridge_prefix": "c"}}, "bridge_prefix"),
        ({"leaf": {"driver": "linux_bridge", "bridge": "-n"}}, "leaf.linux_bridge.bridge"),
        (" " * (FILE_BYTES_MAX + 1), "larger"),
    ],
)
def test_a_file_that_is_wrong_is_refused_with_its_field(tmp_path: Path, content: Any, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        read_switches(written(tmp_path, content))
