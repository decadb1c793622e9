"""A guest does not reach the node past its bridge: each protection alone holds, and without them the frames arrive."""

from __future__ import annotations

from typing import Any

import pytest

from tests.libvirt_driver.network.past_the_bridge import CASES
from tests.libvirt_driver.network.stage import staged

ARRIVES = {
    "nothing": ["ipv4", "ipv6"],
    # The kernel shows these to no chain of the bridge: 802.1AB.
    "bridge rules": ["ipv4", "ipv6"],
    "ipv6 off": ["ipv4"],
    "no bridge, nothing": ["ipv4", "ipv6"],
}


# Twenty seconds of namespaces. tests/libvirt_driver/network/test_isolation.py forges frames in `make test`.
pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def found() -> Any:
    """What one run found."""
    return staged("tests.libvirt_driver.network.past_the_bridge")


@pytest.mark.parametrize("case", CASES)
def test_forged_packets_past_the_bridge_arrive_without_protection_alone(found: Any, case: str) -> None:
    assert found[case] == ARRIVES.get(case, [])


def test_taps_and_bridges_have_no_ipv6(found: Any) -> None:
    assert found["settings"] == ["1", "1"]


def test_a_bridge_learns_nothing_from_frames_that_skip_its_rules(found: Any) -> None:
    assert found["learned"] == [False, True], "and would without its setting"


def test_the_node_answers_no_arp_of_a_tap_that_is_out_of_its_bridge(found: Any) -> None:
    assert found["arp"] == [False, True], "and would without its setting"
