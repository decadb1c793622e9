"""What the agent says when the driver libvirt cannot be used."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from node_agent.drivers.choice import choose_driver
from node_agent.problems import CannotStart
from tests.libvirt_driver.choosing import settings


def test_a_directory_for_guests_is_demanded(tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match="BERTH_GUEST_DIR"):
        choose_driver(settings(tmp_path))


@pytest.mark.hardware
def test_the_address_of_guests_must_be_one_of_the_node(tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match="BERTH_AGENT_ADVERTISED_HOST"):
        choose_driver(settings(tmp_path, guest_dir=tmp_path / "guests", agent_advertised_host="node.example"))
    assert not (tmp_path / "guests").exists()


def test_missing_packages_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = [name for name in sys.modules if name.startswith("node_agent.drivers.libvirt.")]
    for name in loaded:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "libvirt", None)
    monkeypatch.setitem(sys.modules, "pycdlib", None)
    with pytest.raises(CannotStart, match=r"requirements-libvirt\.lock"):
        choose_driver(settings(tmp_path, guest_dir=tmp_path / "guests"))
    assert not (tmp_path / "guests").exists()


@pytest.mark.parametrize(
    "change",
    [
        {"guest_memory_bytes": 1},
        {"guest_disk_bytes": (1 << 30) + 1},
        {"guest_processors": 0},
        {"guest_user_id_first": 0},
    ],
)
def test_a_guest_that_cannot_be_is_refused_at_the_start(tmp_path: Path, change: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(change))):
        settings(tmp_path, guest_dir=tmp_path, **change)
