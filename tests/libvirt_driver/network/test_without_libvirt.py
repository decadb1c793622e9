"""Networks are tended without libvirtd, and leases without networks."""

from __future__ import annotations

from typing import Any

import pytest

from tests.libvirt_driver.network.stage import staged

pytestmark = pytest.mark.hardware
"""They need the packages of the driver, and no guest."""

pytest.importorskip("libvirt", reason="the packages of requirements-libvirt.lock are not installed")


@pytest.fixture(scope="module")
def found() -> Any:
    """What one run found."""
    return staged("tests.libvirt_driver.network.without_libvirt")


def test_a_start_without_libvirt_brings_the_networks_of_guests_that_run_back(found: Any) -> None:
    problem, interfaces, has_rules = found["start"]
    assert "libvirt cannot be reached" in problem
    assert (interfaces, has_rules) == (2, True)


def test_rules_are_restored_while_libvirt_is_down(found: Any) -> None:
    assert found["tended"] is True


def test_a_network_that_cannot_be_restored_keeps_no_lease_from_being_renewed(found: Any) -> None:
    assert (found["cleared"], found["renewed"]) == ([], True)


def test_the_stage_of_a_guest_follows_its_record(found: Any) -> None:
    assert found["stages"] == ["there", "coming", "leaving"]
