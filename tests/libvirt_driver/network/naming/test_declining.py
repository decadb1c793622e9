"""A guest asks a DHCP server for its own card alone."""

from __future__ import annotations

import pytest

from tests.libvirt_driver.network.stage import staged, why_no_name_servers


def test_a_guest_declines_no_other_guests_address_and_would_without_the_rule() -> None:
    if (reason := why_no_name_servers()) is not None:
        pytest.skip(reason)
    found = staged("tests.libvirt_driver.network.naming.declining")
    assert found == ["10.66.1.12", "10.66.1.12", None]
