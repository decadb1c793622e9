"""An unknown enrolment token costs one lookup, over connections for strangers; nothing else of its request is evaluated."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from tests.api.calling import Caller, new_node, new_region, problem, signing_request
from tests.api.nodes.attestation.software_tpm import encoded
from tests.api.processes import public_process
from tests.databases import copied_database
from tests.support.public_api import PublicApi

UNKNOWN = "enrol2.-." + "u" * 43
PATHS = ("/nodes/enroll", "/nodes/enroll/challenge")


def body_of(path: str, token: str, csr_pem: str = "") -> dict[str, Any]:
    """A body for the path, by default with structures that cannot be read."""
    junk = encoded(b"junk" * 9)
    if path == "/nodes/enroll":
        attestation = {"quote": junk, "signature": junk}
        return {
            "token": token,
            "hardware_id": "machine",
            "csr_pem": csr_pem or "no request",
            "attestation": attestation,
        }
    return {"token": token, "hardware_id": "machine", "tpm": {"ek_public": junk, "ak_public": junk}}


@contextmanager
def statements_sent() -> Iterator[list[str]]:
    """Every statement that this process sends to PostgreSQL about nodes, but those of the issuer that runs beside the API."""
    sent: list[str] = []
    execute = psycopg.AsyncCursor.execute

    async def noting(self: Any, query: Any, *rest: Any, **more: Any) -> Any:
        text = query.decode() if isinstance(query, bytes) else str(query)
        if not any(word in text for word in ("certificate_requests", "from deploy_systems")) and (
            "enrolment_tokens" in text or "node" in text
        ):
            sent.append(text)
        return await execute(self, query, *rest, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(psycopg.AsyncCursor, "execute", noting)
        yield sent


@pytest.mark.parametrize("path", PATHS)
def test_an_unknown_token_is_one_statement_and_nothing_else_is_evaluated(api: PublicApi, path: str) -> None:
    stranger = Caller(api.admin.http, None)
    with statements_sent() as statements:
        problem(stranger.call("POST", path, body_of(path, UNKNOWN)), 401, "unauthenticated")
    assert [text.partition(" where")[0] for text in statements] == ["select exists (select from enrolment_tokens"]


@pytest.mark.parametrize("path", PATHS)
def test_a_known_token_gets_what_is_wrong_with_the_rest(api: PublicApi, path: str) -> None:
    node = new_node(api.admin, new_region(api.admin))
    token = api.admin.make(f"/admin/nodes/{node['id']}/enrolment-token", {})["token"]
    refusal = Caller(api.admin.http, None).call("POST", path, body_of(path, token))
    assert refusal.json()["code"] == ("invalid" if path == "/nodes/enroll" else "attestation_refused")
    used = body_of("/nodes/enroll", token, signing_request())
    del used["attestation"]
    assert Caller(api.admin.http, None).call("POST", "/nodes/enroll", used).status_code == 200


@pytest.mark.parametrize("path", PATHS)
def test_the_body_of_a_stranger_is_small(api: PublicApi, path: str) -> None:
    body = {**body_of(path, UNKNOWN), "hardware_id": "x" * 40_000}
    refused = Caller(api.admin.http, None).call("POST", path, body)
    assert problem(refused, 413, "too_large")["outcome"] == "not_done"


def test_unknown_tokens_slow_down_their_address(postgres_server: Any, migrated_template: str, tmp_path: Any) -> None:
    settings = {"BERTH_FAILED_ATTEMPTS_MAX": "3", "BERTH_FAILED_ATTEMPTS_PER_SECOND": "0.001"}
    with copied_database(postgres_server, migrated_template) as url, public_process(url, tmp_path, settings) as http:
        bodies = [body_of("/nodes/enroll", f"{UNKNOWN}{number}") for number in range(5)]
        statuses = [http.post("/api/v1/nodes/enroll", json=body).status_code for body in bodies]
    assert statuses == [401] * 3 + [429] * 2
