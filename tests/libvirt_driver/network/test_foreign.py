"""The rules of tenant networks leave bridges alone that are none of them."""

from __future__ import annotations

from tests.libvirt_driver.network.stage import staged


def test_machines_at_another_bridge_ask_their_dhcp_server() -> None:
    found = staged("tests.libvirt_driver.network.foreign")
    assert found["no rules"] == ["asked", "asked"], "without the rules both are heard"
    assert found["names"] == found["no names"] == ["asked", ""]
