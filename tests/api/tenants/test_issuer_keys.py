"""The issuer's keys at hand: rotation, withdrawal, and an issuer that is away, slow, huge, wrong, or asked too often."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from berth.local.authority import ensure_authority
from orchestrator.http.oidc.issuer_documents import IssuerDocuments
from orchestrator.http.oidc.issuer_keys import IssuerKeys
from orchestrator.http.oidc.key_sets import KeySet
from orchestrator.http.oidc.token_refusals import TokenInvalid
from orchestrator.http.oidc.tokens import TokenHeader
from orchestrator.settings import Settings
from tests.api.calling import at_once, problem
from tests.api.tenants.issuer import (
    DISCOVERY_PATH,
    JWKS_PATH,
    Issuer,
    new_signing_key,
    public_jwk,
    running_issuer,
    send,
    signed,
)
from tests.api.tenants.token_api import NEVER_SECONDS, TokenApi, token_api
from tests.support.waiting import wait_for

BYTES_MAX = 20_000


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    """An issuer for each test, as tests break it."""
    with running_issuer() as issuer:
        yield issuer


def unavailable(api: TokenApi, token: str) -> dict[str, Any]:
    """The refusal that says nothing about the token, because nothing can be said now."""
    answer = api.with_token(token).call("GET", "/skus")
    assert int(answer.headers["retry-after"]) > 0
    document = problem(answer, 503, "issuer_unavailable")
    assert document["outcome"] == "not_done"
    return document


def test_keys_are_fetched_before_the_first_request_and_then_serve_on(url: str, issuer: Issuer) -> None:
    with token_api(url, issuer, oidc_refetch_seconds=NEVER_SECONDS) as api:
        wait_for(lambda: issuer.fetches() == 1, "the first fetch")
        assert [api.status(api.tenant_token(jti=str(n))) for n in range(5)] == [200] * 5
    assert issuer.asked == [DISCOVERY_PATH, JWKS_PATH]


def test_a_named_key_set_is_asked_without_discovery(url: str, issuer: Issuer) -> None:
    with token_api(url, issuer, oidc_jwks_url=f"{issuer.address}{JWKS_PATH}") as api:
        assert api.status(api.tenant_token()) == 200
    assert set(issuer.asked) == {JWKS_PATH}


def test_a_new_key_is_found_when_it_is_first_used_and_the_old_one_serves_beside_it(url: str, issuer: Issuer) -> None:
    with token_api(url, issuer) as api:
        old = api.tenant_token()
        assert api.status(old) == 200
        issuer.add_key("second", "RS256")
        wait_for(lambda: api.status(api.tenant_token("second")) == 200, "the new key")
        assert api.status(old) == 200


def test_a_withdrawn_key_ends_its_tokens_even_known_ones(url: str, issuer: Issuer) -> None:
    issuer.add_key("second")
    with token_api(url, issuer, oidc_cache_seconds=0.05) as api:
        old, new = api.tenant_token("first"), api.tenant_token("second")
        assert (api.status(old), api.status(new)) == (200, 200)
        issuer.withdraw("first")
        wait_for(lambda: api.status(old) == 401, "the withdrawn key to be refused")
        problem(api.with_token(old).call("GET", "/skus"), 401, "token_invalid")
        assert api.status(new) == 200


def test_an_unlisted_key_is_refused_while_the_next_fetch_is_under_way() -> None:
    """The issuer has answered: that it is asked once more does not make it unavailable."""
    fetches = 0
    asked_again = asyncio.Event()

    class Documents(IssuerDocuments):
        async def fetch_key_set(self) -> KeySet:
            nonlocal fetches
            fetches += 1
            if fetches > 1:
                asked_again.set()
                await asyncio.Event().wait()
            others.append(asyncio.create_task(keys.key_of(header)))
            return {}

    others: list[asyncio.Task[object]] = []
    documents = Documents("https://issuer", None, timeout_seconds=1, bytes_max=BYTES_MAX, ca_certificate_file=None)
    keys = IssuerKeys(documents, cache_seconds=60, refetch_seconds=0, stale_seconds_max=60)
    header = TokenHeader("withdrawn", "RS256")

    async def scene() -> None:
        with pytest.raises(TokenInvalid):
            await keys.key_of(header)
        assert asked_again.is_set(), "the next fetch began before the first caller went on"
        others[0].cancel()

    asyncio.run(scene())


def test_another_key_under_the_same_id_ends_the_tokens_of_the_first(url: str, issuer: Issuer) -> None:
    with token_api(url, issuer, oidc_cache_seconds=0.05) as api:
        old = api.tenant_token()
        assert api.status(old) == 200
        issuer.withdraw("first")
        issuer.add_key("first")
        wait_for(lambda: api.status(old) == 401, "the replaced key to be refused")
        assert api.status(api.tenant_token()) == 200


def test_an_issuer_that_is_away_from_the_start_is_logged_and_found_when_it_comes(url: str, issuer: Issuer) -> None:
    issuer.stop()
    with token_api(url, issuer) as api:
        token = api.tenant_token()
        unavailable(api, token)
        assert api.tenant.get("/skus"), "API keys need no issuer"
        answer = api.with_token(issuer.token("first", iss="https://nowhere")).call("GET", "/skus")
        assert answer.status_code == 503, "nothing is said of a token that cannot be checked"
        issuer.start()
        wait_for(lambda: api.status(token) == 200, "the issuer to be found")


def test_while_the_issuer_is_away_the_known_keys_serve_and_only_for_so_long(url: str, issuer: Issuer) -> None:
    with token_api(url, issuer, oidc_cache_seconds=0.02, oidc_stale_seconds_max=1.0) as api:
        token = api.tenant_token()
        assert api.status(token) == 200
        issuer.stop()
        issuer.add_key("second", published=False)  # a fetch that is under way may still be answered
        wait_for(lambda: api.status(api.tenant_token("second")) == 503, "the issuer to be found away")
        wait_for(lambda: api.status(token) == 503, "the keys to become too old, for known tokens too")
        unavailable(api, api.tenant_token(jti="another"))
        issuer.start()
        wait_for(lambda: api.status(token) == 200, "the issuer to be found again")


def test_keys_serve_while_the_issuer_is_away(url: str, issuer: Issuer) -> None:
    with token_api(url, issuer, oidc_cache_seconds=0.02) as api:
        assert api.status(api.tenant_token()) == 200
        issuer.stop()
        issuer.add_key("second", published=False)  # a fetch that is under way may still be answered
        wait_for(lambda: api.status(api.tenant_token("second")) == 503, "the issuer to be found away")
        assert api.status(api.tenant_token(jti="not seen before")) == 200
        unavailable(api, api.tenant_token("second"))


def test_a_slow_issuer_holds_its_requests_for_a_bounded_time_and_no_others(url: str, issuer: Issuer) -> None:
    with token_api(url, issuer, oidc_timeout_seconds=0.3) as api:
        wait_for(lambda: api.status(api.tenant_token()) == 200, "the first fetch")
        issuer.held.clear()
        issuer.add_key("second")
        unavailable(api, api.tenant_token("second"))
        assert api.status(api.tenant_token(jti="meanwhile")) == 200
        issuer.held.set()
        wait_for(lambda: api.status(api.tenant_token("second")) == 200, "the issuer to answer again")


def test_an_issuer_that_drips_is_given_up_in_time(url: str, issuer: Issuer) -> None:
    def drip(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.end_headers()
        while issuer.held.wait(0.02):
            request.wfile.write(b" ")

    issuer.answers[JWKS_PATH] = drip
    with token_api(url, issuer, oidc_timeout_seconds=0.3) as api:
        assert unavailable(api, api.tenant_token())["outcome"] == "not_done"
    issuer.held.clear()


def test_however_many_wait_the_issuer_is_asked_once(url: str, issuer: Issuer) -> None:
    issuer.held.clear()
    with token_api(url, issuer, oidc_refetch_seconds=NEVER_SECONDS) as api:
        tokens = [api.tenant_token(jti=str(number)) for number in range(8)]
        wait_for(lambda: bool(issuer.asked), "the first fetch to begin")

        def let_go() -> int:
            # The eight are in flight or not yet begun: either way one fetch serves them.
            issuer.held.set()
            return 200

        assert at_once(*[lambda token=token: api.status(token) for token in tokens], let_go) == [200] * 9
    assert issuer.fetches() == 1


def test_a_flood_of_unknown_keys_does_not_reach_the_issuer(url: str, issuer: Issuer) -> None:
    stranger = new_signing_key("ES256")
    with token_api(url, issuer, oidc_refetch_seconds=NEVER_SECONDS) as api:
        assert api.status(api.tenant_token()) == 200
        for number in range(200):
            token = signed(issuer.claims(), stranger, {"kid": f"unknown-{number}"})
            problem(api.with_token(token).call("GET", "/skus"), 401, "token_invalid")
        assert api.status(api.tenant_token()) == 200
    assert issuer.fetches() == 1


def test_what_cannot_be_ours_is_refused_without_asking_the_issuer(url: str, issuer: Issuer) -> None:
    with token_api(url, issuer) as api:
        assert api.status(api.tenant_token()) == 200
        fetched = issuer.fetches()
        rsa_key = issuer.add_key("rsa", "RS256", published=False)
        for headers in ({"kid": "new", "crit": ["x"], "x": 1}, {"kid": "new", "typ": "other"}):
            problem(
                api.with_token(signed(issuer.claims(), rsa_key, headers)).call("GET", "/skus"), 401, "token_invalid"
            )
        assert issuer.fetches() == fetched


def _endless(request: BaseHTTPRequestHandler) -> None:
    request.send_response(200)
    request.end_headers()
    while True:
        request.wfile.write(b" " * 4_096)


def _said(status: int, body: Any, **headers: str) -> Callable[[BaseHTTPRequestHandler], None]:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return lambda request: send(request, status, content, **headers)


ANOTHER = public_jwk(new_signing_key("ES256"), kid="another")
BROKEN: dict[str, tuple[str, Callable[[BaseHTTPRequestHandler], None]]] = {
    "huge": (JWKS_PATH, _said(200, {"keys": [], "more": "x" * BYTES_MAX})),
    "endless": (JWKS_PATH, _endless),
    "no JSON": (JWKS_PATH, _said(200, b"<html>")),
    "deep": (JWKS_PATH, _said(200, b"[" * 10_000)),
    "a list": (JWKS_PATH, _said(200, [ANOTHER])),
    "no keys": (JWKS_PATH, _said(200, {"keys": None})),
    "too many keys": (JWKS_PATH, _said(200, {"keys": [{}] * 101})),
    "an error": (JWKS_PATH, _said(500, {"keys": []})),
    "nothing there": (JWKS_PATH, _said(404, {"keys": []})),
    "moved": (JWKS_PATH, _said(302, {"keys": []}, location="/realms/cloud/keys")),
    "compressed": (JWKS_PATH, _said(200, {"keys": []}, content_encoding="gzip")),
    "hung up": (JWKS_PATH, lambda request: request.connection.close()),
    "another issuer's discovery": (DISCOVERY_PATH, _said(200, {"issuer": "https://a", "jwks_uri": "https://a/keys"})),
    "no discovery": (DISCOVERY_PATH, _said(200, b"{")),
    "discovery of a list": (DISCOVERY_PATH, _said(200, [])),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_issuer_costs_nothing_but_its_new_keys(url: str, issuer: Issuer, what: str) -> None:
    path, answer = BROKEN[what]
    with token_api(url, issuer, oidc_document_bytes_max=BYTES_MAX) as api:
        assert api.status(api.tenant_token()) == 200
        issuer.add_key("second")
        issuer.answers[path] = answer
        wait_for(lambda: api.status(api.tenant_token("second")) == 503, "the broken answer")
        unavailable(api, api.tenant_token("second"))
        assert api.status(api.tenant_token()) == 200
        del issuer.answers[path]
        wait_for(lambda: api.status(api.tenant_token("second")) == 200, "the issuer to be well again")


@pytest.mark.parametrize("address", ["http://example.com/keys", "ftp://127.0.0.1/keys", "/keys", 7, None])
def test_keys_come_only_from_where_they_cannot_be_changed(url: str, issuer: Issuer, address: object) -> None:
    issuer.answers[DISCOVERY_PATH] = _said(200, {"issuer": issuer.url, "jwks_uri": address})
    with token_api(url, issuer) as api:
        unavailable(api, api.tenant_token())
    assert issuer.fetches() == 0


def test_an_issuer_behind_tls_is_held_against_the_certificates_that_are_named(url: str, tmp_path: Path) -> None:
    authority = ensure_authority(tmp_path, "berth.local")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(authority.listener_certificate, authority.listener_key)
    with running_issuer(tls) as issuer:
        with token_api(url, issuer, oidc_ca_certificate_file=authority.ca_certificate) as api:
            assert api.status(api.tenant_token()) == 200
        with token_api(url, issuer) as api:
            unavailable(api, api.tenant_token())


def test_an_issuer_that_lists_no_key_any_more_is_believed(url: str, issuer: Issuer) -> None:
    with token_api(url, issuer, oidc_cache_seconds=0.05) as api:
        token = api.tenant_token()
        assert api.status(token) == 200
        issuer.published = []
        wait_for(lambda: api.status(token) == 401, "the withdrawn key to be refused")


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"oidc_issuer": "http://issuer.example", "oidc_audience": "a"}, "oidc_issuer"),
        ({"oidc_issuer": "issuer.example", "oidc_audience": "a"}, "oidc_issuer"),
        ({"oidc_issuer": "https://user:secret@issuer.example", "oidc_audience": "a"}, "oidc_issuer"),
        ({"oidc_issuer": "https://issuer.example"}, "oidc_audience"),
        ({"oidc_issuer": "https://issuer.example", "oidc_audience": ""}, "oidc_audience"),
        ({"oidc_jwks_url": "http://issuer.example/keys"}, "oidc_jwks_url"),
        ({"oidc_jwks_url": "http://127.0.0.1:99999/keys"}, "oidc_jwks_url"),
        ({"oidc_leeway_seconds": 301}, "oidc_leeway_seconds"),
        ({"oidc_admin_role": ""}, "oidc_admin_role"),
    ],
)
def test_settings_that_would_be_unsafe_are_refused_by_name(wrong: dict[str, Any], named: str) -> None:
    with pytest.raises(ValidationError) as raised:
        Settings(database_url="postgresql://x", **wrong)
    assert [error["loc"] for error in raised.value.errors()] == [(named,)]
