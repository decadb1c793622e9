"""A guest has no network that another network or the node has, none before it comes, and none after it has left."""

from __future__ import annotations

from typing import Any

import pytest

from tests.libvirt_driver.network.stage import A1, A2, B1, staged


@pytest.fixture(scope="module")
def found() -> Any:
    """What one run found."""
    return staged("tests.libvirt_driver.network.refusals")


ITS_NETWORK = f"network {A1.order.network_id} of allocation {A1.allocation_id}"
CONFLICTS = {
    "same vni": f"network {B1.order.network_id} has VNI 1, as {ITS_NETWORK}",
    "overlapping": f"network {B1.order.network_id} has subnet 10.66.0.0/16, which overlaps 10.66.1.0/24 of {ITS_NETWORK}",
    "same address": f"address {A1.order.address} is that of allocation {A1.allocation_id}",
    "other subnet": f"network {A1.order.network_id} has another VNI or subnet than {ITS_NETWORK}",
}


@pytest.mark.parametrize("other", CONFLICTS)
def test_two_guests_do_not_share_vni_or_addresses(found: Any, other: str) -> None:
    said, has_tap, has_rules, restored, alone = found[other]
    assert said == CONFLICTS[other]
    assert (has_tap, has_rules) == (False, False)
    assert (restored, alone) == (False, True), "of two records the one that has its tap keeps it"


def test_a_guest_that_is_coming_has_nothing_until_it_is_brought_in(found: Any) -> None:
    stages = found["stages"]
    assert stages["coming"] is False
    assert stages["brought in"] == [True, False, True]
    assert stages["coming, repaired"] == [True, True]


def test_a_guest_that_is_leaving_keeps_its_network_until_it_is_taken_out_and_gets_no_other(found: Any) -> None:
    assert found["stages"]["leaving"] is True
    assert found["stages"]["left"] == [True, [], False], "the rules were restored, without it"


def test_a_guest_that_fails_keeps_no_other_from_its_network(found: Any) -> None:
    assert found["one fails"] == [True, True]


@pytest.mark.parametrize(
    ("of", "problem"),
    [("address", "10.66.1.200/32 of lo"), ("network", "10.66.0.0/16 of up0"), ("route", "10.66.1.64/26 of up0")],
)
def test_a_subnet_that_has_networks_of_the_node_is_refused(found: Any, of: str, problem: str) -> None:
    assert found["of the node"][of] == f"subnet 10.66.1.0/24 of network {A1.order.network_id} overlaps {problem}"
    assert found["of the node"]["default route"] == ""


def test_connections_are_forgotten_though_the_record_is_unreadable(found: Any) -> None:
    assert found["unreadable"] == [str(A2.order.address)]
