"""Names of guests on other nodes come with the answers to heartbeats, and each node leases to its own guests alone."""

from __future__ import annotations

from typing import Any

import pytest

from tests.libvirt_driver.network.stage import A1, staged, why_no_name_servers


@pytest.fixture(scope="module")
def found() -> Any:
    """What one run found."""
    if (reason := why_no_name_servers()) is not None:
        pytest.skip(reason)
    return staged("tests.libvirt_driver.network.naming.elsewhere")


def test_a_name_is_resolved_whichever_node_its_guest_is_on(found: Any) -> None:
    assert found["names"] == {
        "a2": ["10.66.1.12"], "berth-a3.x.test": ["10.66.1.13"], "b2": [], A1.names[0]: ["10.66.1.11"],
    }  # fmt: skip
    assert found["reverse"] == {"code": 0, "answers": ["berth-a2.x.test"]}


def test_names_come_and_go_with_guests_of_other_nodes(found: Any) -> None:
    assert found["a2 left"] == {"a2": [], "a3": ["10.66.1.13"]}
    assert found["a2 returned"] == {"a2": ["10.66.1.12"], "a3": ["10.66.1.13"]}
    assert found["same processes"] is True


def test_an_agent_that_starts_without_the_control_plane_knows_the_names(found: Any) -> None:
    assert found["agent started"] == {"a2": ["10.66.1.12"]}


def test_each_node_leases_to_its_own_guests_with_the_mtu_of_the_uplink(found: Any) -> None:
    common = {"mtu": 1450, "router": "10.66.1.1"}
    assert found["leases"] == [{**common, "address": "10.66.1.11"}, {**common, "address": "10.66.1.12"}]
    assert found["dropped"][0] > 0, "a request goes no further than to the guest's node"
