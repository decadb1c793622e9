"""A released guest's names end with it, also those that its lease had."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from node_agent.drivers.libvirt.network.dhcp import NameServers
from tests.libvirt_driver.network.stage import staged, why_no_name_servers


@pytest.fixture(scope="module")
def found() -> Any:
    """What one run found."""
    if (reason := why_no_name_servers()) is not None:
        pytest.skip(reason)
    return staged("tests.libvirt_driver.network.naming.leaving")


def test_a_guest_that_leased_its_address_is_unknown_once_it_is_released(found: Any) -> None:
    assert found[:-1] == ["10.66.1.12", 0, 0, 0, 3, 3, 0, "10.66.1.11"]


def test_a_name_server_that_does_not_end_keeps_no_guest_from_its_release(found: Any) -> None:
    assert found[-1] == [], "neither tap nor bridge is left"


def test_a_network_that_fails_leaves_no_other_stray(tmp_path: Path) -> None:
    (tmp_path / "1-2").touch()
    (tmp_path / "2-3").mkdir()
    assert NameServers(tmp_path, None, 1500).end_others([]) == []
    assert [path.name for path in tmp_path.iterdir()] == ["1-2"]
