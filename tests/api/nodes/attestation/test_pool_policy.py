"""The attestation policy of a pool holds for its nodes without their own, at enrolment, at renewal and while one is decided."""

from __future__ import annotations

import threading
from typing import Any
from uuid import UUID

import pytest

from orchestrator.nodes.commands.issuance import NOT_ATTESTED
from tests.api.calling import Caller, fresh, new_node, new_region, problem, signing_request
from tests.api.nodes.attestation.attesting import Enrolling, Renewing, decision, key_digest, set_attestation
from tests.api.nodes.attestation.software_tpm import SoftwareTpm
from tests.api.nodes.node_side import NodeSide, new_key
from tests.support.public_api import PublicApi
from tests.support.waiting import wait_for

_WITHOUT_PROOF = dict.fromkeys(("secret", "quote", "signature"))


def pool_of(api: PublicApi, node: Any) -> int:
    """The id of the node's pool."""
    (found,) = [one for one in api.admin.get("/admin/pools?limit=500")["items"] if one["region"] == node["region"]]
    return int(found["id"])


def set_policy(api: PublicApi, node: Any, policy: str) -> Any:
    """Set the policy of the node's pool; the pool."""
    answer = api.admin.call("PUT", f"/admin/pools/{pool_of(api, node)}/attestation", {"policy": policy})
    assert answer.status_code == 200, answer.text
    return answer.json()


def shown(api: PublicApi, node: Any) -> tuple[str, str]:
    """The node's policy, and where it was set."""
    found = api.admin.get(f"/admin/nodes/{node['id']}")
    return found["attestation"], found["attestation_from"]


def test_a_node_has_the_policy_of_its_pool_until_it_gets_its_own(api: PublicApi, node: Any) -> None:
    assert shown(api, node) == ("offered", "default")
    assert set_policy(api, node, "required")["attestation"] == "required"
    assert shown(api, node) == ("required", "pool")
    for policy in ("off", "offered", "required"):
        set_attestation(api, node, policy=policy)
        assert shown(api, node) == (policy, "node")
    set_policy(api, node, "off")
    assert shown(api, node) == ("required", "node")
    set_attestation(api, node, policy="pool")
    assert shown(api, node) == ("off", "pool")


def test_the_change_is_audited_and_repeated_under_its_key(api: PublicApi, node: Any) -> None:
    path, key = f"/admin/pools/{pool_of(api, node)}/attestation", fresh("key")
    set_policy(api, node, "off")
    answers = [api.admin.call("PUT", path, {"policy": "required"}, key=key) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 200]
    rows = api.database.execute(
        "select detail from audit_pending where action = 'pool.set_attestation' and subject = %s order by id",
        (f"pools/{pool_of(api, node)}",),
    ).fetchall()
    assert [(detail["policy_before"], detail["policy"]) for (detail,) in rows] == [  # type: ignore[index]
        ("offered", "off"), ("off", "required"),
    ]  # fmt: skip
    set_attestation(api, node, policy="off")
    set_attestation(api, node, policy="pool")
    row = api.database.execute(
        "select detail from audit_pending where action = 'node.set_attestation' and subject = %s order by id desc",
        (f"nodes/{node['id']}",),
    ).fetchone()
    assert row is not None
    detail: Any = row[0]
    assert (detail["policy_before"], detail["policy"], detail["set_for"]) == ("off", "required", "pool")


def test_bad_policies_and_pools_are_refused(api: PublicApi, node: Any, tenant: Caller) -> None:
    path = f"/admin/pools/{pool_of(api, node)}/attestation"
    for body in ({}, {"policy": "never"}, {"policy": "pool"}, {"policy": None}, {"policy": "off", "more": 1}):
        problem(api.admin.call("PUT", path, body), 422, "invalid")
    problem(api.admin.call("PUT", f"/admin/pools/{2**31 - 1}/attestation", {"policy": "off"}), 404, "not_found")
    for id_ in ("0", str(2**31), "x"):
        assert api.admin.call("PUT", f"/admin/pools/{id_}/attestation", {"policy": "off"}).status_code in (404, 422)
    assert tenant.call("PUT", path, {"policy": "off"}).status_code == 403
    assert shown(api, node) == ("offered", "default")


@pytest.mark.parametrize("own", [None, "off"])
def test_enrolment_follows_the_policy_of_the_pool(api: PublicApi, node: Any, own: str | None) -> None:
    set_policy(api, node, "required")
    if own is not None:
        set_attestation(api, node, policy=own)
        assert Enrolling.of(api, node).send().status_code == 200
        return
    problem(Enrolling.of(api, node).send(), 403, "attestation_required")
    assert Enrolling.of(api, node).attest(SoftwareTpm()).status_code == 200


def test_a_pool_without_attestation_asks_for_no_proof(api: PublicApi, node: Any, node_side: NodeSide) -> None:
    tpm = SoftwareTpm()
    enrolled = Enrolling.of(api, node).attest(tpm)
    renewing = Renewing(node_side, enrolled.json()["certificate_pem"])
    problem(renewing.send(new_key()), 403, "attestation_required")
    set_policy(api, node, "off")
    assert renewing.ask(tpm).json()["credential"] is None
    assert renewing.send(new_key()).status_code == 200


def test_renewals_follow_the_policy_of_the_pool(api: PublicApi, node: Any, node_side: NodeSide) -> None:
    renewing = Renewing(node_side, Enrolling.of(api, node).send().json()["certificate_pem"])
    renewed = renewing.send(new_key())
    assert renewed.status_code == 200
    renewing.pem = renewed.json()["certificate_pem"]
    set_policy(api, node, "required")
    problem(renewing.send(new_key()), 403, "attestation_required")
    set_policy(api, node, "offered")
    assert renewing.send(new_key()).status_code == 200, "the refusal left nothing behind"


def test_a_policy_of_another_pool_changes_nothing(api: PublicApi, node: Any, admin: Caller) -> None:
    other = new_node(admin, new_region(admin))
    set_policy(api, other, "required")
    assert shown(api, node) == ("offered", "default")
    assert Enrolling.of(api, node).send().status_code == 200


def test_no_request_is_signed_without_a_proof_once_the_policy_was_raised(api: PublicApi, node: Any) -> None:
    key = new_key()
    assert Enrolling.of(api, node).send().status_code == 200
    set_policy(api, node, "required")
    # What a listener recorded that had read the policy before.
    values = {**_WITHOUT_PROOF, "key": key_digest(key), "csr": signing_request(key), "node": UUID(node["id"])}
    assert decision(api, values) == NOT_ATTESTED


def test_a_policy_that_is_being_raised_waits_for_what_is_being_signed_and_the_next_waits_for_it(
    api: PublicApi, node: Any, node_side: NodeSide
) -> None:
    renewing = Renewing(node_side, Enrolling.of(api, node).send().json()["certificate_pem"])
    pool, answers = pool_of(api, node), []
    waiting = "select count(*) from pg_locks where locktype = 'advisory' and not granted"

    def waits(number: int) -> None:
        wait_for(lambda: api.database.execute(waiting).fetchone() == (number,), f"{number} to wait for the policy")

    with api.database.transaction():
        # An issuer is deciding a request.
        api.database.execute("select pg_advisory_xact_lock_shared(hashtext('pool_attestations'), %s)", (pool,))
        raising = threading.Thread(target=lambda: answers.append(set_policy(api, node, "required")))
        raising.start()
        waits(1)
        row = api.database.execute("select count(*) from pool_attestations where pool_id = %s", (pool,)).fetchone()
        assert row == (0,)
        sent: list[Any] = []
        renewal = threading.Thread(target=lambda: sent.append(renewing.send(new_key())))
        renewal.start()  # the listener reads the old policy and records the request
        waits(2)
    raising.join()
    renewal.join()
    assert answers[0]["attestation"] == "required"
    refused = problem(sent[0], 401, "unauthenticated")
    assert NOT_ATTESTED in refused["detail"]
    chain = api.database.execute(
        "select count(*) from node_certificates where node_id = %s and revoked_at is null", (node["id"],)
    ).fetchone()
    assert chain == (1,), "nothing was signed"
