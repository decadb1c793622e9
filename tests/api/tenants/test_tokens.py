"""OIDC tokens at the API: their principal, their refusals and codes, and the replay of a retry under another token."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client import generate_latest
from structlog.testing import capture_logs

from benchmarks.seeding import seed_fleet
from orchestrator.http.oidc.token_principals import principal_id
from tests.api.calling import Caller, fresh, new_tenant, problem, ssh_key
from tests.api.tenants.issuer import (
    ADMIN_ROLE,
    ALGORITHMS,
    Issuer,
    encoded,
    hmac_token,
    new_signing_key,
    public_jwk,
    public_pem,
    running_issuer,
)
from tests.api.tenants.token_api import TokenApi, token_api
from tests.support.waiting import wait_for

import jwt  # isort: skip


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    """One issuer for the module, with a key of each kind."""
    with running_issuer() as issuer:
        for algorithm in ALGORITHMS:
            issuer.add_key(algorithm, algorithm)
        yield issuer


@pytest.fixture(scope="module")
def api(url: str, issuer: Issuer) -> Iterator[TokenApi]:
    """One application for the module."""
    with token_api(url, issuer, oidc_role_claim="/realm_access/roles") as api:
        yield api


def operators(**changes: Any) -> dict[str, Any]:
    """Claims of an operator, in the nested place that this module configures."""
    return {"realm_access": {"roles": ["offline_access", ADMIN_ROLE]}, **changes}


def refused(api: TokenApi, token: str, code: str) -> dict[str, Any]:
    """The problem document of a refusal, with its challenge."""
    answer = api.with_token(token).call("GET", "/skus")
    assert answer.headers["www-authenticate"] == 'Bearer error="invalid_token"'
    assert token not in answer.text
    return problem(answer, 401, code)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_tenants_token_acts_for_its_tenant_only(api: TokenApi, algorithm: str) -> None:
    mine = api.with_token(api.tenant_token(algorithm))
    theirs = new_tenant(api.admin)
    made = mine.make("/ssh-keys", {"name": fresh("key"), "public_key": ssh_key()})

    assert made["id"] in [key["id"] for key in api.tenant.get("/ssh-keys")["items"]]
    problem(theirs.call("GET", f"/ssh-keys/{made['id']}"), 404, "not_found")
    problem(mine.call("GET", "/admin/tenants"), 403, "forbidden")
    their_token = api.with_token(api.tenant_token(algorithm, berth_tenant=theirs.tenant_id))
    problem(their_token.call("GET", f"/ssh-keys/{made['id']}"), 404, "not_found")


def test_an_operators_token_acts_as_an_operator_and_its_subject_is_in_the_audit(api: TokenApi, issuer: Issuer) -> None:
    operator = api.with_token(issuer.token("first", sub="root@cloud", **operators()))
    tenant = operator.make("/admin/tenants", {"name": fresh("tenant")})

    (entry,) = operator.get("/admin/audit", subject=f"tenants/{tenant['id']}")["items"]
    assert entry["principal"] == {"kind": "admin", "id": str(principal_id(issuer.url, "root@cloud")), "role": "admin"}
    problem(operator.call("GET", "/ssh-keys"), 403, "forbidden")


def test_the_same_subject_of_another_issuer_is_another_principal() -> None:
    assert principal_id("https://a", "x") == uuid.uuid5(uuid.uuid5(uuid.NAMESPACE_URL, "https://a"), "x")
    assert len({principal_id(i, s) for i in ("https://a", "https://b") for s in ("x", "y")}) == 4


@pytest.mark.parametrize(
    "changes",
    [
        {"iss": "https://elsewhere.example"},
        {"iss": "http://127.0.0.1"},
        {"iss": None},
        {"iss": ["berth"]},
        {"aud": "other"},
        {"aud": "berth2"},
        {"aud": ["other", "ber"]},
        {"aud": []},
        {"aud": None},
        {"aud": {"berth": 1}},
        {"sub": None},
        {"sub": ""},
        {"sub": 7},
        {"sub": "x" * 256},
        {"sub": "line\nbreak"},
        {"exp": None},
        {"exp": "99999999999"},
        {"iat": True},
        {"exp": [1]},
        {"exp": 1e300},
        {"iat": None},
        {"iat": "0"},
        {"nbf": "soon"},
        {"nbf": "0"},
        {"berth_tenant": None},
        {"berth_tenant": ""},
        {"berth_tenant": "acme"},
        {"berth_tenant": 7},
        {"berth_tenant": ["01900000-0000-7000-8000-000000000000"]},
        {"berth_tenant": "{01900000-0000-7000-8000-000000000000}"},
        {"berth_tenant": "01900000000070008000000000000000"},
        operators(),
        operators(berth_tenant=None, realm_access={"roles": [f"{ADMIN_ROLE}s"]}),
        operators(berth_tenant=None, realm_access={"roles": {ADMIN_ROLE: True}}),
        operators(berth_tenant=None, realm_access=[ADMIN_ROLE]),
        {"berth_tenant": None, "/realm_access/roles": [ADMIN_ROLE]},
    ],
    ids=repr,
)
def test_claims_that_are_not_exactly_right_are_refused(api: TokenApi, changes: dict[str, Any]) -> None:
    assert refused(api, api.tenant_token(**changes), "token_invalid")["outcome"] == "not_done"


@pytest.mark.parametrize("changes", [{"aud": ["other", "berth"]}, {"nbf": 0}, {"more": {}}], ids=repr)
def test_claims_that_are_right_in_other_ways_are_taken(api: TokenApi, changes: dict[str, Any]) -> None:
    assert api.status(api.tenant_token(**changes)) == 200


def test_a_token_may_end_within_a_fraction_of_a_second(api: TokenApi) -> None:
    assert api.status(api.tenant_token(exp=time.time() + 900.5)) == 200


@pytest.mark.parametrize(
    ("member", "seconds", "code"),
    [
        ("exp", -15, None),
        ("exp", -45, "token_expired"),
        ("exp", -(10**9), "token_expired"),
        ("nbf", 15, None),
        ("nbf", 60, "token_not_yet_valid"),
        ("iat", 15, None),
        ("iat", 60, "token_not_yet_valid"),
    ],
)
def test_times_are_held_with_the_leeway_of_half_a_minute(
    api: TokenApi, member: str, seconds: int, code: str | None
) -> None:
    changes: dict[str, Any] = {member: int(time.time()) + seconds}
    token = api.tenant_token(**changes)
    if code is None:
        assert api.status(token) == 200
    else:
        refused(api, token, code)


def test_a_known_token_ends_at_its_time(api: TokenApi) -> None:
    token = api.tenant_token(exp=int(time.time()) - 28)
    assert api.status(token) == 200
    wait_for(lambda: api.status(token) == 401, "the token to expire")
    refused(api, token, "token_expired")


def test_signatures_of_other_kinds_are_refused(api: TokenApi, issuer: Issuer) -> None:
    claims = issuer.claims(berth_tenant=api.tenant.tenant_id)
    stranger = new_signing_key("ES256")
    rsa_key = issuer.keys["RS256"]
    forged = {
        "none": f"{encoded({'alg': 'none', 'kid': 'first'})}.{encoded(claims)}.",
        "None, with a signature": f"{encoded({'alg': 'None', 'kid': 'first'})}.{encoded(claims)}.{encoded(b'x')}",
        "no algorithm": f"{encoded({'kid': 'first'})}.{encoded(claims)}.{encoded(b'x' * 64)}",
        "a list": f"{encoded({'alg': ['ES256'], 'kid': 'first'})}.{encoded(claims)}.{encoded(b'x' * 64)}",
        "no signature": f"{encoded({'alg': 'ES256', 'kid': 'first'})}.{encoded(claims)}.",
        "no kid": jwt.encode(claims, issuer.keys["first"], "ES256"),
        "a number as kid": f"{encoded({'alg': 'ES256', 'kid': 7})}.{encoded(claims)}.{encoded(b'x' * 64)}",
        "an unknown kid": jwt.encode(claims, stranger, "ES256", {"kid": "stranger"}),
        "a stranger under a known kid": jwt.encode(claims, stranger, "ES256", {"kid": "first"}),
        "a key inside the token": jwt.encode(claims, stranger, "ES256", {"kid": "first", "jwk": public_jwk(stranger)}),
        "another known key": jwt.encode(claims, issuer.keys["ES256"], "ES256", {"kid": "first"}),
        "another algorithm's key": jwt.encode(claims, issuer.keys["first"], "ES256", {"kid": "RS256"}),
        "RS512": jwt.encode(claims, rsa_key, "RS512", {"kid": "RS256"}),
        "PS256": jwt.encode(claims, rsa_key, "PS256", {"kid": "RS256"}),
        "a public key as secret": hmac_token({"alg": "HS256", "kid": "RS256"}, claims, public_pem(rsa_key)),
        "a public key as secret, said to be RS256": hmac_token(
            {"alg": "RS256", "kid": "RS256"}, claims, public_pem(rsa_key)
        ),
        "a critical extension": issuer.token("first", {"crit": ["b64"], "b64": True}, **claims),
        "of another type": issuer.token("first", {"typ": "logout+jwt"}, **claims),
        "too long": api.tenant_token(more="x" * 16_384),
        "three empty parts": "..",
        "dots": "a.b.c",
        "deep": f"{encoded(b'[' * 5_000)}.{encoded(claims)}.{encoded(b'x')}",
    }
    for what, token in forged.items():
        assert refused(api, token, "token_invalid"), what
    assert api.status(jwt.encode(claims, issuer.keys["first"], "ES256", {"kid": "first"})) == 200


def test_a_token_of_an_unknown_or_suspended_tenant_is_refused_until_it_goes_on(api: TokenApi) -> None:
    tenant = new_tenant(api.admin)
    token = api.tenant_token(berth_tenant=tenant.tenant_id)
    assert api.status(token) == 200
    api.admin.call("PATCH", f"/admin/tenants/{tenant.tenant_id}", {"state": "suspended"})
    refused(api, token, "tenant_not_active")
    api.admin.call("PATCH", f"/admin/tenants/{tenant.tenant_id}", {"state": "active"})
    assert api.status(token) == 200
    refused(api, api.tenant_token(berth_tenant=str(uuid.uuid4())), "tenant_not_active")


def test_creates_take_tokens_and_the_timeline_names_the_subject(api: TokenApi, url: str, issuer: Issuer) -> None:
    seed_fleet(url, 5)
    tenant = api.with_token(api.tenant_token(sub="trainer"))
    key = tenant.make("/ssh-keys", {"name": fresh("key"), "public_key": ssh_key()})
    body = {"sku": "h100.slice", "gpus": 1, "region": "eu-1", "ssh_key_ids": [key["id"]]}

    made = tenant.make("/allocations", body)

    (begun,) = tenant.get(f"/allocations/{made['allocation_id']}/timeline")["items"]
    assert begun["actor"] == {"kind": "tenant", "id": str(principal_id(issuer.url, "trainer"))}
    for token, code in ((api.tenant_token(aud="other"), "token_invalid"), (api.tenant_token(exp=1), "token_expired")):
        answer = api.with_token(token).call("POST", "/allocations", body)
        assert problem(answer, 401, code)["outcome"] == "not_done"
    operator = api.with_token(issuer.token("first", **operators()))
    problem(operator.call("POST", "/allocations", body), 403, "forbidden")


def test_operation_keys_are_a_subjects_under_all_its_tokens(api: TokenApi, issuer: Issuer) -> None:
    def operator(subject: str, number: int) -> Caller:
        return api.with_token(issuer.token("first", sub=subject, jti=str(number), **operators()))

    body, key = {"name": fresh("tenant")}, fresh("op")
    first = operator("ann", 1).call("POST", "/admin/tenants", body, key=key)
    again = operator("ann", 2).call("POST", "/admin/tenants", body, key=key)
    other = operator("bob", 3).call("POST", "/admin/tenants", body, key=key)

    assert (again.status_code, again.content) == (first.status_code, first.content)
    assert again.headers["idempotent-replayed"] == "true"
    problem(other, 409, "already_exists")


def test_a_secret_is_returned_again_to_the_same_token_only(api: TokenApi, issuer: Issuer) -> None:
    def asked(number: int) -> Any:
        caller = api.with_token(issuer.token("first", sub="ann", iat=1, exp=2**40, jti=str(number), **operators()))
        return caller.call("POST", "/admin/api-keys", {"name": name, "role": "admin"}, key=key)

    name, key = fresh("key"), fresh("op")
    first = asked(1)
    # ES256 signs anew each time: only the very same token opens the answer.
    same = Caller(api.admin.http, first.request.headers["authorization"].removeprefix("Bearer "))
    repeated = same.call("POST", "/admin/api-keys", {"name": name, "role": "admin"}, key=key)
    later = problem(asked(2), 409, "secret_not_shown_again")

    assert (repeated.status_code, repeated.content) == (201, first.content)
    made = first.json()
    assert later["outcome"] == "unknown"
    assert later["answer"] == {member: value for member, value in made.items() if member != "key"}
    assert made["key"] not in json.dumps(later)
    keys = [found for found in api.admin.every("/admin/api-keys", 500) if found["name"] == name]
    assert len(keys) == 1, "a replay makes nothing"
    assert Caller(api.admin.http, made["key"]).get("/admin/tenants")


def test_a_token_is_verified_once_counted_each_time_and_written_down_never(api: TokenApi) -> None:
    token = api.tenant_token(sub="counted")

    def accepted() -> float:
        lines = generate_latest().decode().splitlines()
        counts = [line for line in lines if line.startswith('berth_api_tokens_total{result="accepted"}')]
        return float(counts[0].split()[-1]) if counts else 0.0

    before = accepted()
    with capture_logs() as logs:
        assert [api.status(token) for _ in range(3)] == [200] * 3
        refused(api, api.tenant_token(aud="other"), "token_invalid")
    verified = [entry for entry in logs if entry["event"] == "token_verified"]
    assert [entry["subject"] for entry in verified] == ["counted"]
    assert token.rsplit(".", 1)[1] not in repr(logs)
    assert accepted() - before == 3


def test_a_role_makes_no_operator_unless_a_setting_names_it(url: str, issuer: Issuer) -> None:
    with token_api(url, issuer, oidc_admin_role=None) as api:
        for role in (ADMIN_ROLE, "admin", None, "", ["None"]):
            assert refused(api, api.admin_token(berth_role=role), "token_invalid")["outcome"] == "not_done"


def test_without_an_issuer_a_token_is_an_unknown_key(url: str, issuer: Issuer) -> None:
    with token_api(url, issuer, oidc_issuer=None, oidc_audience=None) as api:
        problem(api.with_token(api.tenant_token()).call("GET", "/skus"), 401, "unauthenticated")
        assert api.tenant.get("/skus")
