"""Which guests of other nodes a node learns of with its heartbeat: those of its networks, on nodes that connect theirs."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from dataclasses import replace
from ipaddress import IPv4Address
from typing import Any

import pytest
from pydantic import ValidationError
from structlog.testing import capture_logs

from node_agent.protocol import Heartbeat, HeartbeatAnswer
from node_agent.wire.networks import (
    SPANNED_GUESTS_MAX,
    TENANT_NETWORK_FEATURE,
    VXLAN_FEATURE,
    SpanAnswer,
    SpannedNetwork,
    SpanReport,
)
from orchestrator.allocations.commands.provision import begin_provisioning
from orchestrator.networks.rules import mac_of
from orchestrator.networks.store.span import find_guests_elsewhere
from orchestrator.nodes.commands.heartbeat import record_heartbeat, record_unchanged
from orchestrator.nodes.refusals import DriverRefused
from orchestrator.operations.execution import Context
from orchestrator.tasks.store.heartbeats import NodeReport
from tests.allocations.driving import clean_up, release, row_of, run_with
from tests.allocations.seeding import Seeded, add_tenant, connect, create_allocation, seed

FEATURES = [TENANT_NETWORK_FEATURE, VXLAN_FEATURE]


def fleet(url: str, nodes: int = 3) -> Seeded:
    """Nodes whose agents make tenant networks and connect them, each at the underlay address of its place in the list."""
    seeded = seed(url, slice_nodes=nodes)
    with connect(url) as connection:
        for number, node in enumerate(seeded.nodes, 1):
            connection.execute(
                "update nodes set agent_features = %s, underlay = %s where id = %s",
                (FEATURES, f"192.0.2.{number}", node.id),
            )
    return seeded


def placed(url: str, seeded: Seeded, node: int) -> uuid.UUID:
    """An allocation on one node, whose provision has begun."""
    with connect(url) as connection:
        connection.execute(
            "update nodes set state = case when id = %s then 'active' else 'cordoned' end", (seeded.nodes[node].id,)
        )
    allocation = create_allocation(url, seeded, gpus=1)
    run_with(url, lambda context: begin_provisioning(context, allocation, "w"))
    return allocation


def beat(url: str, node: uuid.UUID, **changes: Any) -> SpanAnswer:
    """The answer to a heartbeat of a node that connects its networks."""
    span = SpanReport.model_validate({"underlay": "192.0.2.9", **changes})
    heartbeat = Heartbeat(agent_version="1", driver="libvirt", allocations=[], features=FEATURES, span=span)

    answer = answer_to(url, node, heartbeat).span
    assert answer is not None
    return answer


def answer_to(url: str, node: uuid.UUID, heartbeat: Heartbeat) -> HeartbeatAnswer:
    """What the control plane says."""

    async def work(context: Context) -> HeartbeatAnswer:
        return await record_heartbeat(context, node, heartbeat, sandbox_allowed=True)

    return run_with(url, work)


def learned(url: str, node: uuid.UUID, **changes: Any) -> list[tuple[int, list[tuple[str, str]]]]:
    """VNI, and addresses with their underlay addresses, of each network that the answer names."""
    networks = beat(url, node, **changes).networks
    assert networks is not None
    return [(one.vni, [(str(it.address), str(it.underlay)) for it in one.guests]) for one in networks]


def test_a_node_learns_of_the_guests_of_its_networks_on_other_nodes(database_url: str) -> None:
    seeded = fleet(database_url)
    with connect(database_url) as connection:
        rival = add_tenant(connection, "rival")
    other = replace(seeded, tenant_id=rival.tenant_id, ssh_key_id=rival.ssh_key_id)
    for whose, node in ((seeded, 0), (seeded, 0), (seeded, 1), (other, 1), (other, 2)):
        placed(database_url, whose, node)
    first, second, third = (node.id for node in seeded.nodes)
    assert learned(database_url, first) == [(1, [("10.64.0.4", "192.0.2.2")])]
    assert learned(database_url, second, underlay="192.0.2.2") == [
        (1, [("10.64.0.2", "192.0.2.9"), ("10.64.0.3", "192.0.2.9")]), (2, [("10.64.1.3", "192.0.2.3")]),
    ], "with the underlay address of the first node's heartbeat"  # fmt: skip
    assert learned(database_url, third, underlay="192.0.2.2") == [(2, [])], (
        "of two nodes with one address none is named"
    )
    assert learned(database_url, third, underlay="192.0.2.3") == [(2, [("10.64.1.2", "192.0.2.2")])]
    (network,) = beat(database_url, first, underlay="192.0.2.8").networks or []
    assert network.guests[0].mac == mac_of(network.guests[0].address)


def test_a_node_without_guests_in_networks_learns_nothing(database_url: str) -> None:
    seeded = fleet(database_url)
    placed(database_url, seeded, 0)
    assert learned(database_url, seeded.nodes[1].id) == []


@pytest.mark.parametrize(
    "change",
    ["underlay = null", "identity_conflict_at = clock_timestamp()", "state = 'retired'"],
)
def test_a_guest_on_a_node_that_connects_nothing_is_not_named(database_url: str, change: str) -> None:
    seeded = fleet(database_url)
    placed(database_url, seeded, 0)
    placed(database_url, seeded, 1)
    assert learned(database_url, seeded.nodes[0].id) == [(1, [("10.64.0.3", "192.0.2.2")])]
    with connect(database_url) as connection:
        connection.execute(f"update nodes set {change} where id = %s", (seeded.nodes[1].id,))
    assert learned(database_url, seeded.nodes[0].id) == [(1, [])]


def test_a_node_whose_identity_is_in_conflict_learns_nothing(database_url: str) -> None:
    seeded = fleet(database_url)
    placed(database_url, seeded, 0)
    placed(database_url, seeded, 1)
    with connect(database_url) as connection:
        connection.execute(
            "update nodes set identity_conflict_at = clock_timestamp() where id = %s", (seeded.nodes[0].id,)
        )
    assert learned(database_url, seeded.nodes[0].id) == []


def test_an_agent_of_the_version_before_gets_nothing_and_its_guests_are_not_named(database_url: str) -> None:
    seeded = fleet(database_url)
    placed(database_url, seeded, 0)
    placed(database_url, seeded, 1)
    beat(database_url, seeded.nodes[0].id)
    before = Heartbeat(agent_version="1", driver="libvirt", allocations=[], features=[TENANT_NETWORK_FEATURE])
    assert answer_to(database_url, seeded.nodes[0].id, before).span is None
    assert row_of(database_url, f"select underlay from nodes where id = '{seeded.nodes[0].id}'")["underlay"] is None
    assert learned(database_url, seeded.nodes[1].id) == [(1, [])]


def test_a_guest_is_named_until_its_claim_is_closed(database_url: str) -> None:
    seeded = fleet(database_url)
    placed(database_url, seeded, 0)
    leaving = placed(database_url, seeded, 1)
    named = [(1, [("10.64.0.3", "192.0.2.2")])]

    async def end(context: Context) -> None:
        await release(context, seeded, leaving)

    run_with(database_url, end)
    assert learned(database_url, seeded.nodes[0].id) == named

    async def clean(context: Context) -> None:
        await clean_up(context, database_url, leaving)

    run_with(database_url, clean)
    assert learned(database_url, seeded.nodes[0].id) == [(1, [])]


def test_an_etag_saves_the_list_until_something_changes(database_url: str) -> None:
    seeded = fleet(database_url)
    first, second, _ = (node.id for node in seeded.nodes)
    placed(database_url, seeded, 0)
    etags = [beat(database_url, first).etag]

    def has_changed() -> bool:
        answer = beat(database_url, first, etag=etags[-1])
        etags.append(answer.etag)
        return answer.networks is not None

    assert not has_changed()
    leaving = placed(database_url, seeded, 1)
    assert has_changed(), "a guest came"
    assert not has_changed()
    beat(database_url, second, underlay="192.0.2.7")
    assert has_changed(), "its node has another address"
    beat(database_url, second, underlay="192.0.2.7")
    assert not has_changed()
    answer_to(database_url, second, Heartbeat(agent_version="1", driver="libvirt", allocations=[]))
    assert has_changed(), "its node connects nothing any more"

    async def end(context: Context) -> None:
        await release(context, seeded, leaving)
        await clean_up(context, database_url, leaving)

    run_with(database_url, end)
    assert has_changed(), "a guest left"
    assert beat(database_url, first, etag=etags[-1], underlay="192.0.2.8").networks is not None, "this node moved"
    assert len(set(etags)) == 5


@pytest.mark.parametrize(
    "change", [None, "driver", "identity"], ids=["the control", "a refused driver", "a conflict of identity"]
)
def test_a_heartbeat_that_is_not_accepted_moves_no_node(database_url: str, change: str | None) -> None:
    seeded = fleet(database_url)
    first, second, _ = (node.id for node in seeded.nodes)
    placed(database_url, seeded, 0)
    placed(database_url, seeded, 1)
    beat(database_url, second, underlay="192.0.2.2")
    etag = beat(database_url, first).etag
    statement = {
        "driver": "update pools set driver = 'another'",
        "identity": "update nodes set identity_conflict_at = clock_timestamp() where id = %(id)s",
    }
    with connect(database_url) as connection:
        if change is not None:
            connection.execute(statement[change], {"id": second})
    with pytest.raises(DriverRefused) if change == "driver" else contextlib.nullcontext():
        beat(database_url, second, underlay="192.0.2.7")
    with connect(database_url) as connection:
        connection.execute("update pools set driver = 'libvirt'")
    moved = change is None
    assert (beat(database_url, first, etag=etag).networks is not None) is moved
    found = row_of(database_url, f"select host(underlay) as underlay from nodes where id = '{second}'")
    assert found["underlay"] == ("192.0.2.7" if moved else "192.0.2.2")


def test_nodes_of_the_same_networks_that_move_at_once_wait_for_each_other(database_url: str) -> None:
    seeded = fleet(database_url)
    for node in (0, 1):
        placed(database_url, seeded, node)
    nodes = [node.id for node in seeded.nodes[:2]]

    async def work(context: Context) -> None:
        beats = [
            record_heartbeat(
                context, nodes[number % 2],
                Heartbeat(
                    agent_version="1", driver="libvirt", allocations=[],
                    span=SpanReport(underlay=IPv4Address(f"192.0.2.{100 + number}")),
                ),
                sandbox_allowed=True,
            )
            for number in range(20)
        ]  # fmt: skip
        assert all(answer.span is not None for answer in await asyncio.gather(*beats))

    run_with(database_url, work, pool_size=10)
    assert row_of(database_url, "select members_version from networks")["members_version"] >= 20


@pytest.mark.parametrize(("guests_max", "is_named"), [(2, True), (1, False)])
def test_networks_of_more_guests_than_the_bound_are_not_named(
    database_url: str, guests_max: int, is_named: bool
) -> None:
    seeded = fleet(database_url)
    for node in (0, 1, 2):
        placed(database_url, seeded, node)

    async def work(context: Context) -> SpanAnswer:
        async with context.database.transaction() as tx:
            return await find_guests_elsewhere(tx, seeded.nodes[0].id, None, guests_max=guests_max)

    with capture_logs() as logs:
        answer = run_with(database_url, work)
    assert (answer.networks is not None) is is_named
    assert answer.etag
    said = [(one["event"], one["node_id"]) for one in logs if one["event"] == "networks_too_large"]
    assert said == ([] if is_named else [("networks_too_large", str(seeded.nodes[0].id))])


def test_an_answer_of_more_guests_than_the_bound_is_refused() -> None:
    guest = {"address": "10.64.0.2", "mac": "52:54:0a:40:00:02", "underlay": "192.0.2.1"}
    network = {"network_id": str(uuid.uuid4()), "vni": 1, "guests": [guest] * SPANNED_GUESTS_MAX}
    assert SpannedNetwork.model_validate(network).guests[1:]
    with pytest.raises(ValidationError, match="too_long"):
        SpannedNetwork.model_validate(network | {"guests": [guest] * (SPANNED_GUESTS_MAX + 1)})


@pytest.mark.parametrize(
    "underlay", ["127.0.0.1", "224.0.0.1", "169.254.0.1", "0.0.0.0", "255.255.255.255", "fd00::1", "node", ""]
)
def test_an_address_that_is_no_hosts_is_refused(underlay: str) -> None:
    with pytest.raises(ValidationError, match="underlay"):
        SpanReport.model_validate({"underlay": underlay})


def test_an_answer_with_parts_of_a_later_version_is_understood() -> None:
    guest = {"address": "10.64.0.2", "mac": "52:54:0a:40:00:02", "underlay": "192.0.2.1", "name": "later"}
    network = SpannedNetwork.model_validate({"network_id": str(uuid.uuid4()), "vni": 1, "guests": [guest], "names": []})
    assert network.guests[0].address == IPv4Address("10.64.0.2")


def test_together_a_node_learns_of_what_changed_alone(database_url: str) -> None:
    seeded = fleet(database_url)
    first, second = (node.id for node in seeded.nodes[:2])
    placed(database_url, seeded, 0)
    with connect(database_url) as connection:
        connection.execute(
            "insert into node_certificates (serial, node_id, node_epoch, key_sha256, not_before, not_after)"
            " select 'aa', id, epoch, sha256('k'), clock_timestamp(), clock_timestamp() + interval '1 day'"
            " from nodes where id = %s",
            (first,),
        )

    def together(etag: str | None) -> HeartbeatAnswer | None:
        span = SpanReport(underlay=IPv4Address("192.0.2.9"), etag=etag)
        beat = Heartbeat(agent_version="1", driver="libvirt", allocations=[], features=FEATURES, span=span)
        report = NodeReport(first, "aa", beat)
        (answer,) = run_with(database_url, lambda context: record_unchanged(context, [report], sandbox_allowed=True))
        return answer

    etag = beat(database_url, first).etag
    same = together(etag)
    assert same is not None
    assert same.span == SpanAnswer(etag=etag, networks=None)
    assert together(None) is None, "an agent that knows nothing"
    placed(database_url, seeded, 1)
    assert together(etag) is None, "there is a guest on another node now"
    assert learned(database_url, second, underlay="192.0.2.2") == [(1, [("10.64.0.2", "192.0.2.9")])]
