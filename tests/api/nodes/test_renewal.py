"""Renewal: a node asks with the certificate it has, and only one that still counts. TLS itself is tested in node_api."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from cryptography import x509
from starlette.testclient import TestClient

from orchestrator.app import build_services, node_listener
from orchestrator.http.asgi import App, Receive, Scope, Send
from tests.api.calling import Caller, enrol, new_node, new_region, problem, refusal, signing_request
from tests.support.public_api import PublicApi, settings_over


class PeerOf:
    """Replaces the TLS layer: names the certificate of the connection."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.peer: dict[str, Any] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope.setdefault("state", {})["peer"] = self.peer
        await self.app(scope, receive, send)

    def present(self, pem: str | None) -> None:
        """The next connections come with this certificate."""
        if pem is None:
            self.peer = None
            return
        certificate = x509.load_pem_x509_certificate(pem.encode())
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        uris = tuple(("URI", uri) for uri in names.get_values_for_type(x509.UniformResourceIdentifier))
        self.peer = {"subjectAltName": uris, "serialNumber": f"{certificate.serial_number:040X}"}


class NodeSide:
    """The node listener, and how to renew at it."""

    def __init__(self, http: httpx.Client, peer: PeerOf) -> None:
        self.http = http
        self.peer = peer

    def renew(self, pem: str | None, behind: str = "") -> httpx.Response:
        """Ask for a new certificate with this one; `behind` is sent after the signing request."""
        self.peer.present(pem)
        return self.http.post("/node/v1/certificate", json={"csr_pem": signing_request() + behind})


@pytest.fixture
def node_side(api: PublicApi, tmp_path: Any) -> Iterator[NodeSide]:
    """The node listener over the same database."""
    parameters = api.database.info.get_parameters()
    url = f"postgresql://{parameters['user']}:{api.database.info.password}@127.0.0.1:{api.database.info.port}/{parameters['dbname']}"
    services = build_services(settings_over(url, tmp_path))
    peer = PeerOf(node_listener(services))
    with TestClient(peer, raise_server_exceptions=False) as http:
        yield NodeSide(http, peer)
        assert http.portal is not None
        http.portal.call(services.context.database.close)


def enrolled(admin: Caller, node: Any) -> str:
    """The certificate of a fresh enrolment."""
    pem: str = enrol(admin, node["id"]).json()["certificate_pem"]
    return pem


@pytest.fixture
def node(admin: Caller) -> Any:
    """A registered node."""
    return new_node(admin, new_region(admin))


def test_a_renewed_certificate_counts_and_the_old_one_stays_good(admin: Caller, node: Any, node_side: NodeSide) -> None:
    first = enrolled(admin, node)
    answer = node_side.renew(first)
    assert answer.status_code == 200, answer.text
    told = answer.json()
    assert (told["node_id"], told["node_epoch"]) == (node["id"], 1)
    assert node_side.renew(told["certificate_pem"]).status_code == 200
    assert node_side.renew(first).status_code == 200, "the answer may have been lost: the old one must still do"


def test_a_request_with_more_behind_it_is_refused_and_nothing_is_issued(
    api: PublicApi, admin: Caller, node: Any, node_side: NodeSide
) -> None:
    first = enrolled(admin, node)
    for behind in ("x", signing_request()):
        document = problem(node_side.renew(first, behind), 422, "invalid")
        assert document["errors"][0]["field"] == "csr_pem"
    issued = api.database.execute("select count(*) from node_certificates where node_id = %s", (node["id"],)).fetchone()
    assert issued == (1,)


def test_who_has_no_certificate_or_a_revoked_one_is_refused(admin: Caller, node: Any, node_side: NodeSide) -> None:
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
    api.database.execute("update nodes set state = 'active' where id = %s", (node["id"],))
    assert node_side.renew(first).status_code == 200
    api.database.execute("update node_certificates set not_after = now() where node_id = %s", (node["id"],))
    problem(node_side.renew(first), 401, "unauthenticated")


def test_renewing_without_end_keeps_a_handful_and_always_the_one_presented(
    api: PublicApi, admin: Caller, node: Any, node_side: NodeSide
) -> None:
    first = enrolled(admin, node)
    for _ in range(7):
        assert node_side.renew(first).status_code == 200
    live = api.database.execute(
        "select count(*) from node_certificates where node_id = %s and revoked_at is null", (node["id"],)
    ).fetchone()
    assert live == (4,)


def test_an_unusable_request_is_refused(admin: Caller, node: Any, node_side: NodeSide) -> None:
    node_side.peer.present(enrolled(admin, node))
    assert refusal(node_side.http.post("/node/v1/certificate", json={"csr_pem": "junk"})) == (422, "invalid")
    assert refusal(node_side.http.post("/node/v1/certificate", json={"csr": "junk"})) == (422, "invalid")
