"""A node's certificates form one chain: a stolen one is noticed when it is renewed, and never displaces the rightful one."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509 import load_pem_x509_certificate

from orchestrator.nodes.store.certificates import VALID_PER_NODE_MAX
from tests.api.calling import Caller, at_once, enrol, problem
from tests.api.nodes.node_side import NodeSide, new_key
from tests.support.public_api import PublicApi


@pytest.fixture
def first(admin: Caller, node: Any) -> str:
    """The certificate of the node's enrolment."""
    pem: str = enrol(admin, node["id"]).json()["certificate_pem"]
    return pem


def audited(admin: Caller, node: Any, action: str) -> list[Any]:
    """Details of the node's audit records of an action."""
    records = admin.every("/admin/audit", 500, subject=f"nodes/{node['id']}")
    return [record["detail"] for record in records if record["action"] == action]


def serials(api: PublicApi, node: Any) -> list[tuple[Any, ...]]:
    """(serial, predecessor, whether it is revoked) of the node's certificates, the oldest first."""
    return api.database.execute(
        "select serial, predecessor, revoked_at is not null from node_certificates where node_id = %s order by issued_at",
        (node["id"],),
    ).fetchall()


def conflicts(api: PublicApi, node: Any) -> list[Any]:
    """Payloads of the node's identity conflicts."""
    rows = api.database.execute(
        "select payload from outbox where event_type = 'node.identity_conflict' and subject = %s",
        (f"nodes/{node['id']}",),
    )
    return [payload for (payload,) in rows.fetchall()]


def serial_of(pem: str) -> str:
    """Serial number in lower-case hex."""
    return format(load_pem_x509_certificate(pem.encode()).serial_number, "x")


def renewed_to_the_bound(node_side: NodeSide, pem: str) -> str:
    """The newest certificate of a chain that begins with this one and has the most that may be valid."""
    for _ in range(VALID_PER_NODE_MAX - 1):
        pem = node_side.renew(pem).json()["certificate_pem"]
    return pem


def test_a_stolen_certificate_renewed_first_suspends_the_node_when_the_node_renews(
    api: PublicApi, admin: Caller, node: Any, node_side: NodeSide, first: str
) -> None:
    stolen = node_side.renew(first).json()["certificate_pem"]
    assert node_side.heartbeat(first).status_code == 200, "the rightful node goes on until it renews"
    refused = node_side.renew(first)
    assert problem(refused, 403, "identity_conflict")["outcome"] == "not_done"
    for pem in (first, stolen):
        for call in (node_side.wait_for_tasks, node_side.heartbeat, node_side.renew):
            assert problem(call(pem), 403, "identity_conflict")["status"] == 403
    seen = admin.get(f"/admin/nodes/{node['id']}")
    assert seen["identity_conflict_at"] is not None
    assert seen["online"] is False
    detail = {"epoch": 1, "serial": serial_of(first)}
    assert conflicts(api, node) == [{"node_id": node["id"], "name": node["name"], **detail}]
    assert audited(admin, node, "node.refuse_renewal") == [detail]


def test_a_certificate_that_has_a_successor_is_not_renewed_for_another_key(
    api: PublicApi, admin: Caller, node: Any, node_side: NodeSide, first: str
) -> None:
    second = node_side.renew(first).json()["certificate_pem"]
    node_side.renew(second)
    assert problem(node_side.renew(first), 403, "identity_conflict")["status"] == 403
    assert len(serials(api, node)) == 3, "nothing is issued"


def test_enrolment_ends_the_suspension_and_the_chain(admin: Caller, node: Any, node_side: NodeSide, first: str) -> None:
    stolen = node_side.renew(first).json()["certificate_pem"]
    node_side.renew(first)
    fresh = enrol(admin, node["id"]).json()["certificate_pem"]
    assert node_side.heartbeat(fresh).status_code == 200
    seen = admin.get(f"/admin/nodes/{node['id']}")
    assert (seen["identity_conflict_at"], seen["online"], seen["epoch"]) == (None, True, 2)
    for pem in (first, stolen):
        assert problem(node_side.renew(pem), 401, "unauthenticated")["status"] == 401


def test_renewals_without_end_displace_no_certificate(
    api: PublicApi, admin: Caller, node: Any, node_side: NodeSide, first: str
) -> None:
    stolen = renewed_to_the_bound(node_side, first)
    assert problem(node_side.renew(stolen), 409, "too_many_certificates")["outcome"] == "not_done"
    assert node_side.heartbeat(first).status_code == 200
    rows = serials(api, node)
    assert len(rows) == VALID_PER_NODE_MAX
    assert not any(revoked for _, _, revoked in rows)
    assert conflicts(api, node) == []
    assert problem(node_side.renew(first), 403, "identity_conflict")["status"] == 403


def test_a_chain_goes_on_when_an_earlier_certificate_has_ended(
    api: PublicApi, admin: Caller, node: Any, node_side: NodeSide, first: str
) -> None:
    newest = renewed_to_the_bound(node_side, first)
    api.database.execute("update node_certificates set not_after = now() where serial = %s", (serial_of(first),))
    assert node_side.renew(newest).status_code == 200


def test_of_simultaneous_renewals_with_two_keys_at_most_one_is_issued_and_the_other_is_a_fork(
    api: PublicApi, admin: Caller, node: Any, node_side: NodeSide, first: str
) -> None:
    node_side.peer.present(first)
    keys = [new_key(), new_key()]
    answers = at_once(*(lambda key=key: node_side.renew(first, key=key) for key in keys * 4))
    assert {403} <= {answer.status_code for answer in answers} <= {200, 403}
    issued = {answer.json()["certificate_pem"] for answer in answers if answer.status_code == 200}
    assert len(issued) <= len(serials(api, node)) - 1 <= 1, "none if the fork arrives before the issuer signs"
    assert len(conflicts(api, node)) == 1


def test_renewals_name_their_predecessor_and_are_audited(
    api: PublicApi, admin: Caller, node: Any, node_side: NodeSide, first: str
) -> None:
    key = new_key()
    second = node_side.renew(first, key=key).json()["certificate_pem"]
    node_side.renew(first, key=key)
    third = node_side.renew(second).json()["certificate_pem"]
    chain = [serial_of(pem) for pem in (first, second, third)]
    assert serials(api, node) == [(chain[0], None, False), (chain[1], chain[0], False), (chain[2], chain[1], False)]
    assert audited(admin, node, "node.renew_certificate") == [
        {"epoch": 1, "serial": chain[1], "predecessor": chain[0]},
        {"epoch": 1, "serial": chain[2], "predecessor": chain[1]},
    ]


def test_with_its_own_key_a_certificate_is_answered_itself_and_nothing_is_issued(
    api: PublicApi, admin: Caller, node: Any, node_side: NodeSide, first: str
) -> None:
    key = new_key()
    second = node_side.renew(first, key=key).json()["certificate_pem"]
    answered = node_side.renew(second, key=key)
    assert answered.status_code == 200
    assert answered.json()["certificate_pem"] == second
    issued = load_pem_x509_certificate(second.encode()).public_key()
    own = key.public_key()
    assert issued.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo) == own.public_bytes(
        Encoding.DER, PublicFormat.SubjectPublicKeyInfo
    )
    assert len(serials(api, node)) == 2


def test_a_heartbeat_admitted_before_the_conflict_does_not_put_the_node_online(
    api: PublicApi, admin: Caller, node: Any, node_side: NodeSide, first: str
) -> None:
    """The caller is looked up, then the heartbeat is written: the conflict may lie between the two."""
    node_side.renew(first)
    node_side.renew(first)
    node_side.record_heartbeat(UUID(node["id"]))
    assert admin.get(f"/admin/nodes/{node['id']}")["online"] is False
    online = "select count(*) from outbox where event_type = 'node.online' and subject = %s"
    assert api.database.execute(online, (f"nodes/{node['id']}",)).fetchone() == (0,)
