"""A guest resolves the names of its tenant's guests and of no other, and gets by DHCP what is leased to it, and no more."""

from __future__ import annotations

from typing import Any

import pytest

from tests.libvirt_driver.network.naming.answers import QUERIES
from tests.libvirt_driver.network.stage import A1, A2, B1, staged, why_no_name_servers

HERE = "tests.libvirt_driver.network.naming"
UNKNOWN, REFUSED = {"code": 3, "answers": []}, {"code": 5, "answers": []}
LEASE = {
    "address": "10.66.1.11", "sent to": "255.255.255.255", "mask": "255.255.255.0", "router": "10.66.1.1", "dns": "10.66.1.1",
    "domain": "berth.internal", "mtu": 1500, "name": A1.names[0], "seconds": 86_400,
    "search": b"\x05berth\x08internal\x00".hex(),
}  # fmt: skip
NET_BIND_SERVICE, NET_ADMIN = 1 << 10, 1 << 12


def of(*addresses: str) -> dict[str, Any]:
    """An answer with these addresses."""
    return {"code": 0, "answers": list(addresses)}


@pytest.fixture(scope="module")
def found() -> Any:
    """What one run found."""
    if (reason := why_no_name_servers()) is not None:
        pytest.skip(reason)
    return staged(f"{HERE}.answers")


def test_names_of_the_tenant_are_resolved_and_those_of_others_are_not(found: Any) -> None:
    assert found["answers"]["names of a1"] == {
        "web": of("10.66.1.11"), "web.berth.internal": of("10.66.1.11"), "WEB.berth.internal": of("10.66.1.11"),
        "db": of("10.66.1.12"), A2.names[0]: of("10.66.1.12"), f"{B1.names[0]}.berth.internal": UNKNOWN,
        "www.example.org": REFUSED,
    }  # fmt: skip
    assert found["answers"]["names of b1"] == {
        "web": of("10.66.2.11"), "web.berth.internal": of("10.66.2.11"), "WEB.berth.internal": of("10.66.2.11"),
        "db": UNKNOWN, A2.names[0]: UNKNOWN, f"{B1.names[0]}.berth.internal": of("10.66.2.11"), "www.example.org": REFUSED,
    }, "the same name is another guest's in another network"  # fmt: skip
    assert found["answers"]["by tcp"] == of("10.66.1.12")


def test_addresses_have_names_within_the_network(found: Any) -> None:
    own, others, theirs = found["answers"]["reverse"]
    assert (own, others) == (of(f"{A1.names[0]}.berth.internal"), UNKNOWN)
    assert theirs == of(f"{B1.names[0]}.berth.internal")


def test_a_guest_gets_by_dhcp_exactly_what_is_leased_to_it(found: Any) -> None:
    assert found["answers"]["lease"] == LEASE
    assert found["answers"]["of another card"] == {}


def test_a_guest_that_was_rebuilt_gets_the_same_whatever_it_calls_itself(found: Any) -> None:
    unicast, *others = found["answers"]["lease again"]
    assert unicast == {**LEASE, "sent to": "10.66.1.11"}
    assert others == [LEASE, LEASE]
    assert found["answers"]["names after"] == [of("10.66.1.12"), UNKNOWN, of("10.66.1.11")], "no name by DHCP"


def test_a_process_listens_at_its_bridge_alone_with_few_rights(found: Any) -> None:
    assert found["answers"]["listening"] == ["0.0.0.0%berthb1:67", "0.0.0.0%berthb2:67", "10.66.1.1:53", "10.66.2.1:53"]
    for one in found["answers"]["identity"]:
        assert one.pop("ambient") == one.pop("capabilities") == NET_BIND_SERVICE | NET_ADMIN
        assert one == {"user": "dnsmasq", "no new privileges": "1"}


def test_a_host_whose_packet_filter_sees_bridges_answers_the_same(found: Any) -> None:
    assert found["answers"]["bridge netfilter"] == ["10.66.1.11", of("10.66.1.12"), {}]


@pytest.mark.parametrize(
    "service", ["another network's gateway", "another network's gateway by tcp", "another port", "from outside"]
)
def test_nothing_else_of_the_node_is_reached_and_would_be_without_the_rules(found: Any, service: str) -> None:
    assert not found["answers"]["closed"][service]
    assert found["answers"]["closed, no rules"][service]


def test_a_guest_that_floods_its_server_is_bounded_and_another_is_answered(found: Any) -> None:
    answered, another, damaged = found["answers"]["flood"]
    assert (another, damaged) == (of("10.66.1.11"), False), "what the kernel counts is no damage"
    before, after = found["answers"]["flood dropped"]
    assert (before, after > 0, answered > 0) == (0, True, True)
    assert answered + after <= QUERIES, "what is dropped is not answered"


@pytest.mark.parametrize("damage", ["killed", "bridge gone", "another file", "no file"])
def test_a_damage_is_repaired(found: Any, damage: str) -> None:
    restored, again, name, address, _ = found["damages"][damage]
    assert found["damages"][f"{damage}, before"] is True
    assert (again, name, address) == (False, of("10.66.1.11"), "10.66.1.12")
    assert restored is not damage.endswith("file"), "files are written again without a word"


def test_what_is_whole_is_left_alone(found: Any) -> None:
    assert found["damages"]["nothing"] == [False, False, of("10.66.1.11"), "10.66.1.12", True]
    assert found["damages"]["another file"][-1] is True, "the process reads it again, and is not replaced"


def test_the_process_ends_with_the_last_guest_and_strays_are_ended(found: Any) -> None:
    assert found["damages"]["last guest left"] == [1, ["1-", "99"]], "files of no network are of before"
    assert found["damages"]["stray"] == [2, True, 1, ["1-"]]


def test_the_next_agent_takes_over_what_runs_and_it_learns_of_changes(found: Any) -> None:
    agents = found["agents"]
    assert agents["adopted"] is True
    assert agents["came"] == [of("10.66.1.77"), True], (
        "also of files that an agent wrote that was killed before its signal"
    )
    assert agents["left"] == [UNKNOWN, of("10.66.1.11"), False], "a process is replaced: it keeps leases"


def test_other_names_are_forwarded_to_the_resolvers_of_the_setting_alone(found: Any) -> None:
    agents = found["agents"]
    assert agents["no resolvers"] == [REFUSED, []]
    assert agents["another setting"] == [False, 1], "a process with other arguments is replaced"
    assert agents["forwarded"] == of("203.0.113.7")
    assert agents["not forwarded"] == [UNKNOWN] * 4
    assert agents["asked"] == ["www.example.org"]


def test_with_the_setting_off_nothing_is_left_and_nothing_is_answered(found: Any) -> None:
    assert found["agents"]["switched off"] == [[], [], {}, {}]
