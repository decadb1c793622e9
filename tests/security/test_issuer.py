"""Only the issuer signs certificates of nodes: it signs what a listener has authenticated and recorded, and nothing twice."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import psycopg
import pytest
from starlette.testclient import TestClient

from berth.local.authority import ensure_authority
from berth.local.processes import ChildProcess, Endpoints, issuer_plan, orchestrator_plan
from berth.local.servers import LocalPostgres, free_port
from migrations.roles import Role
from orchestrator.app import build_issuer, build_services, public_listener
from orchestrator.nodes.certificates import load_authority
from orchestrator.nodes.commands.issuance import issue_pending
from orchestrator.nodes.issuer_settings import IssuerSettings
from orchestrator.settings import Settings
from tests.api.calling import Caller, at_once, insert_admin_key, new_node, new_region, problem, signing_request
from tests.api.nodes.node_side import NodeSide, new_key, node_listener_over
from tests.databases import copied_database
from tests.metrics_ports import get
from tests.support.public_api import PublicApi, issuer_settings_over, settings_over
from tests.support.waiting import wait_for

Decide = Callable[[], int]


@dataclass(frozen=True)
class IssuerStage:
    """A public listener without an issuer, and a round of an issuer on demand."""

    api: PublicApi
    decide: Decide
    directory: Path
    url: str


@pytest.fixture(scope="module")
def stage(
    postgres_server: LocalPostgres, migrated_template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[IssuerStage]:
    """One database for the tests of the module; a request waits briefly for the issuer."""
    with copied_database(postgres_server, migrated_template) as url:
        directory = tmp_path_factory.mktemp("authority")
        services = build_services(settings_over(url, directory))
        with TestClient(public_listener(services), raise_server_exceptions=False) as http:
            assert http.portal is not None
            settings = issuer_settings_over(url, directory)
            _, database = http.portal.call(lambda: _built(settings))
            authority = load_authority(settings)
            portal = http.portal
            with psycopg.connect(url, autocommit=True) as connection:
                api = PublicApi(Caller(http, insert_admin_key(url)), connection)
                yield IssuerStage(api, lambda: portal.call(issue_pending, database, authority), directory, url)
            portal.call(database.close)
            portal.call(services.context.database.close)


async def _built(settings: IssuerSettings) -> Any:
    return build_issuer(settings)


@pytest.fixture
def node(stage: IssuerStage) -> Any:
    """A registered node."""
    return new_node(stage.api.admin, new_region(stage.api.admin))


@pytest.fixture
def node_side(stage: IssuerStage) -> Iterator[NodeSide]:
    """The node listener over the same database, as impatient."""
    with node_listener_over(
        stage.api, stage.directory, settings_over(stage.url, stage.directory, role=Role.NODE_API)
    ) as side:
        yield side


@dataclass
class Enrolment:
    """A token with the key of one machine."""

    stage: IssuerStage
    body: dict[str, str]

    def send(self) -> httpx.Response:
        """Enrol, or repeat the enrolment."""
        return Caller(self.stage.api.admin.http, None).call("POST", "/nodes/enroll", self.body)


def enrolment(stage: IssuerStage, node: Any) -> Enrolment:
    """An enrolment that was not sent yet."""
    token = stage.api.admin.make(f"/admin/nodes/{node['id']}/enrolment-token", {})["token"]
    return Enrolment(stage, {"token": token, "hardware_id": "machine-1", "csr_pem": signing_request()})


def enrolled(stage: IssuerStage, node: Any) -> str:
    """The first certificate of a node."""
    asked = enrolment(stage, node)
    problem(asked.send(), 503, "certificate_pending")
    assert stage.decide() == 1
    pem: str = asked.send().json()["certificate_pem"]
    return pem


def certificates(stage: IssuerStage, node: Any) -> list[tuple[Any, ...]]:
    """(serial, predecessor) of the node's certificates."""
    return stage.api.database.execute(
        "select serial, predecessor from node_certificates where node_id = %s order by issued_at", (node["id"],)
    ).fetchall()


def refusals(stage: IssuerStage, node: Any) -> list[Any]:
    """Refusals of the node's requests, and null for the others."""
    rows = stage.api.database.execute(
        "select refusal from certificate_requests where node_id = %s order by id", (node["id"],)
    )
    return [refusal for (refusal,) in rows.fetchall()]


def test_without_an_issuer_an_enrolment_is_recorded_and_later_answered_once(stage: IssuerStage, node: Any) -> None:
    asked = enrolment(stage, node)
    for _ in range(2):
        refused = asked.send()
        assert problem(refused, 503, "certificate_pending")["outcome"] == "in_progress"
        assert refused.headers["retry-after"] == "2"
    assert certificates(stage, node) == []
    assert stage.decide() == 1
    answers = [asked.send() for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert len({answer.json()["certificate_pem"] for answer in answers}) == 1
    assert stage.decide() == 0
    assert len(certificates(stage, node)) == 1
    assert stage.api.admin.get(f"/admin/nodes/{node['id']}")["epoch"] == 1


def test_without_an_issuer_a_renewal_is_recorded_and_later_answered_once(
    stage: IssuerStage, node: Any, node_side: NodeSide
) -> None:
    first = enrolled(stage, node)
    key = new_key()
    for _ in range(2):
        problem(node_side.renew(first, key=key), 503, "certificate_pending")
    assert stage.decide() == 1
    renewed = [node_side.renew(first, key=key).json()["certificate_pem"] for _ in range(2)]
    assert len(set(renewed)) == 1
    serials = certificates(stage, node)
    assert len(serials) == 2
    assert serials[1][1] == serials[0][0], "the second names the first as its predecessor"


def test_a_second_key_for_a_recorded_renewal_is_a_fork_and_neither_is_signed(
    stage: IssuerStage, node: Any, node_side: NodeSide
) -> None:
    first = enrolled(stage, node)
    problem(node_side.renew(first, key=new_key()), 503, "certificate_pending")
    problem(node_side.renew(first, key=new_key()), 403, "identity_conflict")
    assert stage.decide() == 1
    assert len(certificates(stage, node)) == 1
    assert refusals(stage, node)[1] is not None


def test_a_revocation_withdraws_the_request_that_is_not_signed_yet(stage: IssuerStage, node: Any) -> None:
    asked = enrolment(stage, node)
    problem(asked.send(), 503, "certificate_pending")
    stage.api.admin.make(f"/admin/nodes/{node['id']}/certificates/revoke", {"reason": "lost"})
    assert stage.decide() == 0
    assert refusals(stage, node) == ["lost"]
    problem(asked.send(), 401, "unauthenticated")
    assert certificates(stage, node) == []


_REQUEST = "insert into certificate_requests (node_id, node_epoch, predecessor, key_sha256, csr_pem) select id, "
FORGED = {
    "another epoch": f"{_REQUEST} 2, null, %(key)s, %(csr)s",
    "no such predecessor": f"{_REQUEST} 1, 'ab', %(key)s, %(csr)s",
    "another key": f"update nodes set epoch = 2 where id = %(node)s; {_REQUEST} 2, null, sha256('another key'), %(csr)s",
    "a retired node": f"update nodes set state = 'retired' where id = %(node)s; {_REQUEST} 2, null, %(key)s, %(csr)s",
}
"""Requests that no listener records, as an attacker with the database could write them."""


@pytest.mark.parametrize("name", FORGED)
def test_the_issuer_signs_nothing_that_the_identity_does_not_allow(stage: IssuerStage, node: Any, name: str) -> None:
    enrolled(stage, node)
    key, csr = stage.api.database.execute(
        "select key_sha256, csr_pem from certificate_requests where node_id = %s", (node["id"],)
    ).fetchone() or (None, None)
    for statement in f"{FORGED[name]} from nodes where id = %(node)s".split("; "):
        stage.api.database.execute(statement, {"key": key, "csr": csr, "node": UUID(node["id"])})
    assert stage.decide() == 1
    assert refusals(stage, node)[-1] is not None
    assert len(certificates(stage, node)) == 1


@pytest.mark.full
def test_many_enrolments_and_two_issuers_at_once_give_one_certificate_each(stage: IssuerStage) -> None:
    nodes = [new_node(stage.api.admin, new_region(stage.api.admin)) for _ in range(20)]
    asked = [enrolment(stage, node) for node in nodes]
    at_once(*[one.send for one in asked] * 2)
    decided = at_once(stage.decide, stage.decide)
    assert sum(decided) + stage.decide() == len(nodes)
    assert [one.send().status_code for one in asked] == [200] * len(nodes)
    assert [len(certificates(stage, node)) for node in nodes] == [1] * len(nodes)


@pytest.mark.full
def test_a_listener_with_the_key_of_the_node_ca_does_not_start(stage: IssuerStage) -> None:
    key = ensure_authority(stage.directory, "berth.local").ca_key
    environment = {"BERTH_NODE_CA_KEY_FILE": str(key), "BERTH_DATABASE_URL": stage.url}
    for listen in ("public", "node", "both"):
        ended = subprocess.run(
            [sys.executable, "-m", "orchestrator", "--listen", listen],
            env=environment, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert ended.returncode == 1
        assert "BERTH_NODE_CA_KEY_FILE is set; only `--listen issuer` may have" in ended.stderr


def test_no_process_of_the_local_stack_but_the_issuer_has_the_key_of_the_node_ca(stage: IssuerStage) -> None:
    files = ensure_authority(stage.directory, "berth.local")
    endpoints = Endpoints(stage.url, "", "", 1, 2)
    for listen in ("public", "node"):
        assert str(files.ca_key) not in orchestrator_plan(listen, endpoints, files, 3).environment.values()
    assert str(files.ca_key) in issuer_plan(endpoints, files, 3).environment.values()
    assert "node_ca_key_file" not in Settings.model_fields


def test_the_process_signs_what_is_recorded_and_reports_its_health(stage: IssuerStage, node: Any) -> None:
    asked = enrolment(stage, node)
    problem(asked.send(), 503, "certificate_pending")
    files = ensure_authority(stage.directory, "berth.local")
    endpoints = Endpoints(stage.url, "", "", free_port(), free_port())
    process = ChildProcess(issuer_plan(endpoints, files, free_port()), stage.directory / "issuer.log")
    process.spawn()
    try:
        process.wait_ready()
        wait_for(lambda: asked.send().status_code == 200, "the issuer signs the request")
        _, text = get(process.plan.metrics_port, "/metrics")
    finally:
        process.terminate()
        process.wait_ended()
    assert "berth_issuer_decided_total 1.0" in text
    assert len(certificates(stage, node)) == 1
