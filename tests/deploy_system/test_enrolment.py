"""A deploy system proves its machine once and gets a certificate for minutes; every attack on that is refused by name."""

from __future__ import annotations

import ssl
import uuid
from datetime import datetime

import httpx
import pytest

from orchestrator.nodes.commands.deploy_tasks import Advanced
from tests.api.calling import at_once
from tests.deploy_system.ordering import claim, refused
from tests.deploy_system.stage import MAC, OTHER_MAC, SMBIOS, Stage, connected, forged, uri_of


def test_a_machine_proves_itself_once_and_gets_a_certificate_for_minutes(stage: Stage) -> None:
    node = stage.node()
    machine = stage.permit(node)
    answer = machine.enrol()
    assert answer.status_code == 200, answer.text
    credentials = answer.json()
    assert uri_of(credentials["certificate_pem"]) == [f"spiffe://berth.local/node/{node}/deploy/1"]
    ends, now = (datetime.fromisoformat(credentials[name]) for name in ("ends_at", "server_time"))
    assert 0 < (ends - now).total_seconds() <= 1_800
    again = machine.enrol()
    assert again.json()["certificate_pem"] == credentials["certificate_pem"], "a lost response loses nothing"
    assert len(stage.audited(node, "node.enrol_deploy_system")) == 1
    assert len(stage.audited(node, "node.issue_deploy_certificate")) == 1
    shown = stage.shown(node)
    assert (shown["state"], shown["deploy_epoch"]) == ("enrolled", 1)
    assert "medium" not in shown


def test_a_used_token_is_worthless_to_another_key(stage: Stage) -> None:
    """The stolen medium after its boot: the URL and its content are readable on the BMC."""
    node = stage.node()
    machine = stage.permit(node)
    assert machine.enrol().status_code == 200
    before = stage.facts(node)
    thief = stage.permit(stage.node())  # only for a new key
    thief.medium = machine.medium
    for _ in range(25):
        refused(thief.enrol(), 403, "deploy_refused", "used")
    assert stage.facts(node) == before
    assert len(stage.audited(node, "node.refuse_deploy_system")) == 20, "the audit does not grow with the attempts"


def test_of_twenty_that_race_for_a_token_one_wins(stage: Stage) -> None:
    node = stage.node()
    machine = stage.permit(node)
    racers = [stage.permit(stage.node()) for _ in range(20)]
    for racer in racers:
        racer.medium = machine.medium
    answers = at_once(*(racer.enrol for racer in racers))
    assert sorted(answer.status_code for answer in answers) == [200] + [403] * 19
    assert {answer.json()["reason"] for answer in answers if answer.status_code == 403} == {"used"}
    assert len(stage.audited(node, "node.issue_deploy_certificate")) == 1


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"machine": {"smbios_uuid": str(uuid.UUID(int=9)), "macs": [MAC]}}, "other_machine"),
        ({"machine": {"smbios_uuid": str(SMBIOS), "macs": [OTHER_MAC]}}, "other_machine"),
        ({"deploy_epoch": 2}, "other_epoch"),
    ],
)
def test_a_token_of_another_machine_or_epoch_changes_nothing(
    stage: Stage, changes: dict[str, object], reason: str
) -> None:
    node = stage.node()
    machine = stage.permit(node)
    before = stage.facts(node)
    refused(machine.enrol(**changes), 403, "deploy_refused", reason)
    assert stage.facts(node) == before
    assert machine.enrol().status_code == 200, "the token may be used by its own machine"


def test_an_expired_token_is_refused(stage: Stage) -> None:
    node = stage.node()
    machine = stage.permit(node)
    stage.fleet.connection.execute(
        "update deploy_systems set expires_at = clock_timestamp() where node_id = %s", (node,)
    )
    refused(machine.enrol(), 403, "deploy_refused", "expired")
    assert stage.facts(node)[0][2] is None, "the token was not used"


def test_an_unknown_token_is_a_failed_attempt(stage: Stage) -> None:
    machine = stage.permit(stage.node())
    refused(machine.enrol(token="deploy1." + "x" * 43), 401, "unauthenticated")
    assert stage.facts(machine.medium.node_id)[0][2] is None, "no token was used"


def test_a_newer_permission_ends_the_older_one_at_once(stage: Stage) -> None:
    node = stage.node()
    older = stage.permit(node)
    system = older.enrolled(stage.directory)
    assert system.hello().status_code == 200
    newer = stage.permit(node)
    assert newer.medium.deploy_epoch == 2
    refused(system.hello(), 401, "deploy_system_ended", "superseded")
    refused(system.wait(), 401, "deploy_system_ended", "superseded")
    refused(older.enrol(), 403, "deploy_refused", "superseded")
    assert newer.enrol().status_code == 200


def test_a_revoked_permission_ends_with_its_token_certificate_and_task(stage: Stage) -> None:
    node = stage.node()
    refused(stage.revoke(node), 409, "no_deploy_system")
    unused = stage.permit(node)
    assert stage.revoke(node).status_code == 204
    refused(unused.enrol(), 403, "deploy_refused", "revoked")
    system = stage.started(node)
    assert stage.inspect(node).status_code == 200
    assert stage.advance(node) is Advanced.ISSUED
    task = system.task()
    assert stage.revoke(node).status_code == 204
    refused(system.hello(), 401, "deploy_system_ended", "revoked")
    refused(system.report(task), 401, "deploy_system_ended", "revoked")
    refused(system.machine.enrol(), 403, "deploy_refused", "revoked")
    refused(stage.inspect(node), 409, "no_deploy_system")
    refused(stage.revoke(node), 409, "no_deploy_system")
    assert stage.shown(node)["state"] == "revoked"
    done = [detail for detail in stage.audited(node, "node.revoke_deploy_system") if detail]
    assert done == [{"deploy_epoch": 1}, {"deploy_epoch": 2}], "the others are refusals"
    assert stage.listed(node)["failure"].startswith("revoked: ")
    assert stage.permit(node).medium.deploy_epoch == 3


def test_a_certificate_ends_with_its_time(stage: Stage) -> None:
    node = stage.node()
    system = stage.started(node)
    stage.fleet.connection.execute(
        "update deploy_systems set not_after = clock_timestamp() where node_id = %s", (node,)
    )
    refused(system.hello(), 401, "deploy_system_ended", "expired")
    assert stage.facts(node)[0][5] is None, "the permission itself was not ended"


def test_nothing_is_permitted_or_enrolled_on_a_tenants_machine(stage: Stage) -> None:
    node = stage.node()
    machine = stage.permit(node)
    claim(stage, node)
    before = stage.facts(node)
    refused(stage.ask_permit(node), 409, "node_in_use")
    refused(machine.enrol(), 403, "deploy_refused", "node_in_use")
    assert stage.facts(node) == before


@pytest.mark.parametrize("state", ["active", "retired"])
def test_a_node_in_service_or_retired_is_refused(stage: Stage, state: str) -> None:
    node = stage.node(state)
    refused(stage.ask_permit(node), 409, "invalid_state")
    assert stage.facts(node) == []


def test_a_machine_is_named_by_the_request_or_by_its_inspection(stage: Stage) -> None:
    node = stage.node()
    refused(stage.ask_permit(node, smbios_uuid=None), 409, "machine_unknown")
    stage.fleet.connection.execute("insert into node_machines values (%s, %s, %s, '{}', now())", (node, SMBIOS, [MAC]))
    assert stage.ask_permit(node, smbios_uuid=None).status_code == 201
    wrong = {"mac": OTHER_MAC, "address": "192.0.2.7/24"}
    refused(stage.ask_permit(node, smbios_uuid=None, network=wrong), 422, "invalid")


def test_certificates_of_one_kind_open_no_paths_of_another(stage: Stage) -> None:
    """Also when the thief of one CA's key forges a certificate with a name and serial of the other kind."""
    node, other = stage.node(), stage.node()
    system = stage.started(node)
    refused(system.http.get("/node/v1/tasks/wait"), 401, "unauthenticated")
    refused(system.http.post("/node/v1/heartbeat", json={}), 401, "unauthenticated")
    key = system.machine.key
    serial = int(stage.facts(node)[0][4], 16)
    node_ca = stage.files.ca_key.read_bytes(), stage.files.ca_certificate.read_bytes()
    deploy_ca = stage.files.deploy_ca_key.read_bytes(), stage.files.deploy_ca_certificate.read_bytes()
    uri = f"spiffe://berth.local/node/{node}"
    stage.fleet.connection.execute(
        "insert into node_certificates (serial, node_id, node_epoch, key_sha256, not_before, not_after)"
        " values ('abc', %s, 0, %s, now(), now() + interval '1 hour')",
        (node, b"0" * 32),
    )
    forgeries = {
        forged(*node_ca, uri, 0xABC, key): ("/node/v1/tasks/wait?timeout_seconds=0", 200),
        forged(*deploy_ca, uri, 0xABC, key): ("/node/v1/tasks/wait?timeout_seconds=0", 401),
        forged(*node_ca, f"{uri}/deploy/1", serial, key): ("/deploy/v1/tasks/wait?timeout_seconds=0", 401),
        forged(*deploy_ca, f"{uri}/deploy/01", serial, key): ("/deploy/v1/tasks/wait?timeout_seconds=0", 401),
        forged(*deploy_ca, f"{uri}/deploy/2", serial, key): ("/deploy/v1/tasks/wait?timeout_seconds=0", 401),
        forged(*deploy_ca, f"spiffe://other/node/{node}/deploy/1", serial, key): ("/deploy/v1/tasks/wait", 401),
        forged(*deploy_ca, f"spiffe://berth.local/node/{other}/deploy/1", serial, key): ("/deploy/v1/tasks/wait", 401),
    }
    for certificate, (path, status) in forgeries.items():
        with connected(system.machine, certificate, stage.directory) as http:
            assert http.get(path).status_code == status, (uri_of(certificate), path)


def test_without_a_certificate_there_is_no_handshake(stage: Stage) -> None:
    context = ssl.create_default_context(cafile=str(stage.files.ca_certificate))
    with (
        httpx.Client(base_url=stage.endpoints.node_api_url, verify=context) as http,
        pytest.raises(httpx.TransportError),
    ):
        http.post("/deploy/v1/hello", json={})


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b'{"token": 1}', b"[" * 100_000, b'"' + b"x" * 400_000 + b'"', b'{"machine": {"macs": []}}'],
)
def test_odd_and_huge_bodies_are_refused(stage: Stage, body: bytes) -> None:
    answer = stage.http.post(
        "/api/v1/deploy-systems/enroll", content=body, headers={"content-type": "application/json"}
    )
    assert answer.status_code in (400, 413, 422), answer.text


def test_a_list_of_wrong_addresses_is_refused_at_its_first(stage: Stage) -> None:
    """The cost of a refusal does not grow with the body: one error is named, not a thousand."""
    machine = stage.permit(stage.node())
    wrong = {"smbios_uuid": str(SMBIOS), "macs": ["x"] * 1_000}
    assert [error["field"] for error in machine.enrol(machine=wrong).json()["errors"]] == ["machine.macs.0"]
    answer = stage.ask_permit(machine.medium.node_id, macs=["x"] * 1_000)
    assert [error["field"] for error in answer.json()["errors"]] == ["macs.0"]


def test_a_restart_of_the_listeners_loses_nothing(stage: Stage) -> None:
    node = stage.node()
    machine = stage.permit(node)
    system = machine.enrolled(stage.directory)
    for name in ("public", "node"):
        stage.children[name].kill()
        stage.children[name].wait_ended()
        stage.children[name].spawn()
        stage.children[name].wait_ready()
    assert machine.enrol().json()["certificate_pem"] == system.credentials["certificate_pem"]
    with connected(machine, system.credentials["certificate_pem"], stage.directory) as http:
        assert (
            http.post("/deploy/v1/hello", json={"agent_version": "1", "boot_id": str(uuid.UUID(int=1))}).status_code
            == 200
        )
