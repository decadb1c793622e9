"""A released guest's names end with it, also those that its lease had."""

from __future__ import annotations

from typing import Any

import pytest

from tests.libvirt_driver.network.stage import staged, why_no_name_servers


@pytest.fixture(scope="module")
def found() -> Any:
    """What one run found."""
    if (reason := why_no_name_servers()) is not None:
        pytest.skip(reason)
    return staged("tests.libvirt_driver.network.naming.leaving")


def test_a_guest_that_leased_its_address_is_unknown_once_it_is_released(found: Any) -> None:
    assert found == ["10.66.1.12", 0, 0, 0, 3, 3, 0, "10.66.1.11"]
