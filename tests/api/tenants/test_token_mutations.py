"""No token but the issuer's own, byte for byte, is ever taken; whatever is sent or signed ends in a named refusal."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.http.oidc.key_sets import KeySet, UnreadableKeySet, read_key_set
from orchestrator.http.oidc.token_principals import ClaimRules, User, principal_of
from orchestrator.http.oidc.token_refusals import TokenInvalid, TokenRefused
from orchestrator.http.oidc.tokens import TokenRules, read_header, verify_token
from orchestrator.tenants.principals import Principal
from orchestrator.tenants.roles import OperatorRole
from tests.api.tenants.issuer import ALGORITHMS, encoded, new_signing_key, public_jwk, signed

ISSUER = "https://issuer.example"
TENANT = "01900000-0000-7000-8000-000000000000"
KEYS = {algorithm: new_signing_key(algorithm) for algorithm in ALGORITHMS}
KEY_SET = read_key_set(json.dumps({"keys": [public_jwk(key, kid=kid) for kid, key in KEYS.items()]}).encode())
NOW = int(time.time())
CLAIMS = {"iss": ISSUER, "aud": "berth", "sub": "s", "iat": NOW, "exp": NOW + 86_400, "tenant": TENANT}
TOKENS = {kid: signed(CLAIMS, key, {"kid": kid}) for kid, key in KEYS.items()}
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

some_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["\ud800", TENANT, ISSUER]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def principal(token: str, keys: KeySet = KEY_SET) -> Principal:
    """The principal of a token, all checks in their order."""
    header = read_header(token)
    key = keys.get(header.key_id, {}).get(header.algorithm)
    if key is None:
        raise TokenInvalid("unknown key")
    claims = verify_token(token, key, TokenRules(ISSUER, "berth", 30))
    found = principal_of(claims, ClaimRules(ISSUER, "tenant", "role", {"admin": OperatorRole.ADMIN}))
    if isinstance(found, User):
        raise TokenInvalid("the token names neither a tenant nor an operator's role")
    return found


def taken(token: str) -> bool:
    """Whether it is; anything but a named refusal fails the test."""
    try:
        principal(token)
    except TokenRefused:
        return False
    return True


@pytest.mark.parametrize("kid", ALGORITHMS)
def test_the_token_itself_is_taken(kid: str) -> None:
    assert str(principal(TOKENS[kid]).tenant_id) == TENANT


@given(
    st.sampled_from(ALGORITHMS),
    st.integers(0, 2_000),
    st.sampled_from(["replace", "insert", "delete", "cut"]),
    st.sampled_from(ALPHABET + ".=+/ \n\t\x00"),
)
def test_a_token_with_one_change_is_refused(kid: str, at: int, how: str, character: str) -> None:
    token = TOKENS[kid]
    at %= len(token)
    changed = {
        "replace": token[:at] + character + token[at + 1 :],
        "insert": token[:at] + character + token[at:],
        "delete": token[:at] + token[at + 1 :],
        "cut": token[:at],
    }[how]
    assert taken(changed) == (changed == token)


@given(st.sampled_from(ALGORITHMS), st.integers(0, 63))
def test_the_last_character_has_one_form(kid: str, value: int) -> None:
    changed = TOKENS[kid][:-1] + ALPHABET[value]
    assert taken(changed) == (changed == TOKENS[kid])


@given(st.permutations(range(9)))
def test_parts_of_several_tokens_make_none(order: list[int]) -> None:
    parts = [part for token in TOKENS.values() for part in token.split(".")]
    mixed = ".".join(parts[number] for number in order[:3])
    assert taken(mixed) == (mixed in TOKENS.values())


@given(
    st.text(max_size=60) | st.binary(max_size=60).map(encoded) | st.lists(st.text(ALPHABET), max_size=4).map(".".join)
)
def test_whatever_is_sent_is_refused_by_name(sent: str) -> None:
    assert not taken(sent)


@given(
    st.dictionaries(st.sampled_from(["alg", "kid", "typ", "crit", "b64", "jwk", "jku", "x5c"]), some_json),
    st.sampled_from(ALGORITHMS),
)
def test_whatever_header_is_signed_ends_by_name(header: dict[str, Any], kid: str) -> None:
    claims, signature = TOKENS[kid].split(".")[1:]
    assert not taken(f"{encoded({'kid': kid, 'alg': kid, **header, 'x': 1})}.{claims}.{signature}")


@given(st.dictionaries(st.sampled_from([*CLAIMS, "nbf", "role", "jti"]), some_json, min_size=1))
def test_whatever_claims_are_signed_end_in_a_principal_or_by_name(changes: dict[str, Any]) -> None:
    claims = {**CLAIMS, **changes}
    if taken(signed(claims, KEYS["EdDSA"], {"kid": "EdDSA"})):
        assert claims["iss"] == ISSUER
        assert claims["aud"] == "berth" or "berth" in claims["aud"]
        assert claims["exp"] > NOW - 60
        assert claims["iat"] <= NOW + 600
        assert (claims["tenant"] == TENANT) != (claims["tenant"] is None)


@given(some_json | st.fixed_dictionaries({"keys": some_json | st.lists(some_json)}))
def test_whatever_is_published_is_a_key_set_or_none(document: Any) -> None:
    try:
        assert read_key_set(json.dumps(document).encode()) == {}
    except UnreadableKeySet:
        pass


@given(
    st.sampled_from(ALGORITHMS),
    st.dictionaries(
        st.sampled_from(["kty", "crv", "n", "e", "x", "y", "kid", "use", "alg", "key_ops", "d"]), some_json, min_size=1
    ),
)
def test_a_key_with_changed_members_is_passed_over_or_harmless(kid: str, changes: dict[str, Any]) -> None:
    member = {**public_jwk(KEYS[kid], kid=kid), **changes}
    try:
        found = read_key_set(json.dumps({"keys": [member]}).encode())
    except UnreadableKeySet:
        return
    for by_algorithm in found.values():
        assert set(by_algorithm) == {kid}
        assert not hasattr(by_algorithm[kid].public.key, "sign"), "only public halves are kept"


@pytest.mark.parametrize(
    "member",
    [
        {"kty": "oct", "k": encoded(b"x" * 32), "kid": "k", "alg": "HS256"},
        {**public_jwk(KEYS["RS256"], kid="k"), "use": "enc"},
        {**public_jwk(KEYS["RS256"], kid="k"), "alg": "RS512"},
        {**public_jwk(KEYS["RS256"], kid="k"), "alg": "HS256"},
        {**public_jwk(KEYS["RS256"], kid="k"), "key_ops": ["encrypt"]},
        {**public_jwk(KEYS["RS256"], kid="k"), "n": encoded(b"\xff" * 128)},
        {**public_jwk(KEYS["ES256"], kid="k"), "crv": "P-521"},
        {**public_jwk(KEYS["ES256"], kid="k"), "x": encoded(b"\x01" * 32)},
        public_jwk(KEYS["ES256"]),
    ],
    ids=["symmetric", "encryption", "RS512", "HS256", "operations", "short", "curve", "off the curve", "nameless"],
)
def test_keys_that_serve_nothing_of_ours_are_passed_over(member: dict[str, Any]) -> None:
    good = public_jwk(KEYS["EdDSA"], kid="good", alg="Ed25519")
    found = read_key_set(json.dumps({"keys": [member, good]}).encode())
    assert {kid: set(by_algorithm) for kid, by_algorithm in found.items()} == {"good": {"EdDSA"}}
