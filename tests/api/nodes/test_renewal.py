"""Renewal: a node asks with the certificate it has, and only one that still counts. TLS itself is tested in node_api."""

from __future__ import annotations

from typing import Any

from tests.api.calling import Caller, enrol, new_node, new_region, problem, refusal, signing_request
from tests.api.nodes.node_side import NodeSide, new_key
from tests.support.public_api import PublicApi


def enrolled(admin: Caller, node: Any) -> str:
    """The certificate of a fresh enrolment."""
    pem: str = enrol(admin, node["id"]).json()["certificate_pem"]
    return pem


def test_a_renewed_certificate_counts_and_the_old_one_stays_good(admin: Caller, node: Any, node_side: NodeSide) -> None:
    first, key = enrolled(admin, node), new_key()
    answer = node_side.renew(first, key=key)
    assert answer.status_code == 200, answer.text
    told = answer.json()
    assert (told["node_id"], told["node_epoch"]) == (node["id"], 1)
    assert node_side.renew(told["certificate_pem"]).status_code == 200
    again = node_side.renew(first, key=key)
    assert again.status_code == 200, "the answer may have been lost: the old one must still do"
    assert again.json()["certificate_pem"] == told["certificate_pem"]


def test_a_request_with_more_behind_it_is_refused_and_nothing_is_issued(
    api: PublicApi, admin: Caller, node: Any, node_side: NodeSide
) -> None:
    first = enrolled(admin, node)
    for behind in ("x", signing_request()):
        document = problem(node_side.renew(first, behind), 422, "invalid")
        assert document["errors"][0]["field"] == "csr_pem"
    issued = api.database.execute("select count(*) from node_certificates where node_id = %s", (node["id"],)).fetchone()
    assert issued == (1,)


def test_without_a_certificate_or_with_a_revoked_one_it_is_refused(
    admin: Caller, node: Any, node_side: NodeSide
) -> None:
    assert refusal(node_side.renew(None)) == (401, "unauthenticated")
    first = enrolled(admin, node)
    admin.make(f"/admin/nodes/{node['id']}/certificates/revoke", {"reason": "stolen"})
    assert refusal(node_side.renew(first)) == (401, "unauthenticated")


def test_a_certificate_of_an_older_enrolment_is_refused(
    api: PublicApi, admin: Caller, node: Any, node_side: NodeSide
) -> None:
    first = enrolled(admin, node)
    second = enrolled(admin, node)
    problem(node_side.renew(first), 401, "unauthenticated")
    api.database.execute("update node_certificates set revoked_at = null where node_id = %s", (node["id"],))
    problem(node_side.renew(first), 401, "unauthenticated")
    assert node_side.renew(second).status_code == 200


def test_a_certificate_that_names_another_node_than_it_was_recorded_for_is_refused(
    api: PublicApi, admin: Caller, node: Any, node_side: NodeSide
) -> None:
    first, other = enrolled(admin, node), new_node(admin, new_region(admin))
    enrolled(admin, other)
    api.database.execute("update node_certificates set node_id = %s where node_id = %s", (other["id"], node["id"]))
    assert refusal(node_side.renew(first)) == (401, "unauthenticated")


def test_retired_nodes_and_ended_certificates_are_refused(
    api: PublicApi, admin: Caller, node: Any, node_side: NodeSide
) -> None:
    first = enrolled(admin, node)
    api.database.execute("update nodes set state = 'retired' where id = %s", (node["id"],))
    problem(node_side.renew(first), 401, "unauthenticated")
    with api.database.transaction():  # no transition leads back
        api.database.execute("set local session_replication_role = replica")
        api.database.execute("update nodes set state = 'active' where id = %s", (node["id"],))
    assert node_side.renew(first).status_code == 200
    api.database.execute("update node_certificates set not_after = now() where node_id = %s", (node["id"],))
    problem(node_side.renew(first), 401, "unauthenticated")


def test_an_unusable_request_is_refused(admin: Caller, node: Any, node_side: NodeSide) -> None:
    node_side.peer.present(enrolled(admin, node))
    assert refusal(node_side.http.post("/node/v1/certificate", json={"csr_pem": "junk"})) == (422, "invalid")
    assert refusal(node_side.http.post("/node/v1/certificate", json={"csr": "junk"})) == (422, "invalid")
