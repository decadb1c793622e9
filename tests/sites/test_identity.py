"""An agent of a site proves its identity on every call, and acts only under the lease that it holds (P7, P10)."""

from __future__ import annotations

import ssl
import uuid
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from node_agent.wire.sites import KNOWN_BMC_TASKS_MAX
from tests.api.calling import Caller, problem, signing_request
from tests.sites.stage import FIRST_PASSWORD, Site, Stage


class RawAgent:
    """An agent that sends what a test wants, with its certificate."""

    def __init__(self, stage: Stage, site: Site, name: str, directory: Path) -> None:
        self.stage, self.site = stage, site
        made = stage.admin.make(f"/admin/sites/{site.id}/agents", {"name": name})
        self.id, self.token = made["agent_id"], made["token"]
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.run_id = str(uuid.uuid4())
        self.sealing = X25519PrivateKey.generate().public_key().public_bytes_raw().hex()
        enrolled = self.enrol()
        assert enrolled.status_code == 200, enrolled.text
        self.http = self.client(enrolled.json()["certificate_pem"], self.key, directory)
        self.fence = 0

    def enrol(self, key: ec.EllipticCurvePrivateKey | None = None) -> httpx.Response:
        body = {"token": self.token, "hardware_id": "hw", "csr_pem": signing_request(key or self.key)}
        return Caller(self.stage.http, None).call("POST", "/sites/enroll", body)

    def client(self, pem: str, key: ec.EllipticCurvePrivateKey, directory: Path) -> httpx.Client:
        context = ssl.create_default_context(cafile=str(self.stage.authority.ca_certificate))
        path = directory / f"{uuid.uuid4()}.pem"
        path.write_text(pem + key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode())
        context.load_cert_chain(path)
        return httpx.Client(base_url=self.stage.endpoints.node_api_url, verify=context, timeout=60)

    def lease(self, **more: Any) -> httpx.Response:
        body = {"run_id": self.run_id, "agent_version": "1", "sealing_key": self.sealing, **more}
        answer = self.http.post("/site/v1/lease", json=body)
        if answer.status_code == 200:
            self.fence = answer.json()["fence"]
        return answer

    def tasks(self, timeout_seconds: float = 20.0, **more: Any) -> dict[str, Any]:
        query = {"run_id": self.run_id, "lease_fence": self.fence, "timeout_seconds": timeout_seconds, **more}
        found: dict[str, Any] = self.http.get("/site/v1/tasks/wait", params=query).json()
        return found

    def send(self, task_id: str, verb: str, body: dict[str, Any]) -> httpx.Response:
        return self.http.post(f"/site/v1/tasks/{task_id}/{verb}", json=body)


def test_a_certificate_opens_the_paths_of_its_kind_alone(stage: Stage, site: Site, tmp_path: Path) -> None:
    agent = RawAgent(stage, site, "a", tmp_path)
    assert agent.lease().json()["held"]
    assert agent.http.get("/node/v1/tasks/wait", params={"timeout_seconds": 0}).status_code == 401
    assert agent.http.post("/node/v1/heartbeat", json={}).status_code == 401


def test_a_token_is_used_once_and_its_repetition_is_answered_alike(stage: Stage, site: Site, tmp_path: Path) -> None:
    agent = RawAgent(stage, site, "a", tmp_path)
    assert agent.enrol().status_code == 200
    problem(agent.enrol(ec.generate_private_key(ec.SECP256R1())), 401, "unauthenticated")
    agent.token = "enrol2.-.unknown-unknown-unknown"
    problem(agent.enrol(), 401, "unauthenticated")


def test_a_second_key_in_the_place_of_a_successor_suspends_the_agent(stage: Stage, site: Site, tmp_path: Path) -> None:
    agent = RawAgent(stage, site, "a", tmp_path)
    agent.lease()
    first, second = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    renewed = agent.http.post("/site/v1/certificate", json={"csr_pem": signing_request(first)})
    assert renewed.status_code == 200
    again = agent.http.post("/site/v1/certificate", json={"csr_pem": signing_request(first)})
    assert again.json()["certificate_pem"] == renewed.json()["certificate_pem"]
    forked = agent.http.post("/site/v1/certificate", json={"csr_pem": signing_request(second)})
    assert problem(forked, 403, "identity_conflict")
    problem(agent.lease(), 403, "identity_conflict")
    assert site.read()["agents"][0]["identity_conflict_at"] is not None


@pytest.mark.parametrize("how", ["revoked", "enrolled_again"])
def test_what_no_longer_counts_is_refused_at_once(stage: Stage, site: Site, tmp_path: Path, how: str) -> None:
    agent = RawAgent(stage, site, "a", tmp_path)
    assert agent.lease().status_code == 200
    if how == "revoked":
        stage.admin.make(f"/admin/sites/{site.id}/agents/{agent.id}/revoke", {"reason": "test"})
        problem(agent.lease(), 401, "unauthenticated")
        stage.admin.make(f"/admin/sites/{site.id}/agents", {"name": "a"})
    else:
        RawAgent(stage, site, "a", tmp_path)
    problem(agent.lease(), 401, "unauthenticated")


def test_another_sealing_key_needs_another_enrolment(stage: Stage, site: Site, tmp_path: Path) -> None:
    agent = RawAgent(stage, site, "a", tmp_path)
    agent.lease()
    refused = agent.lease(sealing_key="11" * 32)
    assert problem(refused, 409, "invalid_state")["state"] == "sealing_key"


def test_without_the_lease_nothing_is_handed_out_stored_or_accepted(stage: Stage, site: Site, tmp_path: Path) -> None:
    first, second = (RawAgent(stage, site, name, tmp_path) for name in ("first", "second"))
    assert first.lease().json()["held"]
    refused = stage.metric("berth_site_leases_refused_total")
    assert not second.lease().json()["held"]
    assert stage.metric("berth_site_leases_refused_total") == refused + 1
    with stage.machine() as machine:
        site.put_bmc(machine)
        stage.request(machine.node_id, "rotate")
        (task,) = first.tasks()["tasks"]
        fence = stage.fleet.one("select fence from bmc_tasks where id = %s", task["task_id"])
        assert not second.tasks(0)["held"]
        stage.fleet.connection.execute("update sites set lease_until = clock_timestamp() where id = %s", (site.id,))
        assert second.lease().json()["held"]
        old = first.fence
        assert second.fence == old + 1
        password = {"fence": fence, "lease_fence": old, "generation": 2, "sealed": {site.id: "x", first.id: "x"}}
        assert first.send(task["task_id"], "password", password).json()["stored"] is False
        report = {"fence": fence, "lease_fence": old, "outcome": "failed", "failure": {"code": "c", "detail": "d"}}
        late = first.send(task["task_id"], "result", report).json()
        assert (late["applied"], late["reason"]) == (False, "lease_lost")
        stolen = first.send(task["task_id"], "result", {**report, "lease_fence": second.fence}).json()
        assert (stolen["applied"], stolen["reason"]) == (False, "lease_lost")
        assert [one["task_id"] for one in second.tasks()["tasks"]] == [task["task_id"]], "the holder has it now"
        assert second.tasks(0, known=[task["task_id"]])["tasks"] == []
        now = {**report, "lease_fence": second.fence}
        assert second.send(task["task_id"], "result", {**now, "fence": 0}).json()["reason"] == "superseded"
        assert second.send(task["task_id"], "result", now).json()["applied"]
        assert second.send(task["task_id"], "result", now).json()["reason"] == "already_applied"
        assert machine.password == FIRST_PASSWORD


def test_an_agent_of_another_site_and_a_copy_get_nothing(stage: Stage, site: Site, tmp_path: Path) -> None:
    agent, other = RawAgent(stage, site, "a", tmp_path), RawAgent(stage, stage.site(), "a", tmp_path)
    assert (agent.lease().json()["held"], other.lease().json()["held"]) == (True, True)
    with stage.machine() as machine:
        site.put_bmc(machine)
        stage.request(machine.node_id, "rotate")
        assert not other.tasks(0, run_id=agent.run_id, lease_fence=agent.fence)["held"]
        (task,) = agent.tasks()["tasks"]
        assert other.tasks(0)["tasks"] == []
        fence = stage.fleet.one("select fence from bmc_tasks where id = %s", task["task_id"])
        report = {
            "fence": fence,
            "lease_fence": agent.fence,
            "outcome": "failed",
            "failure": {"code": "c", "detail": "d"},
        }
        sealed = {site.id: "x", other.id: "x"}
        password = {"fence": fence, "lease_fence": agent.fence, "generation": 2, "sealed": sealed}
        problem(other.send(task["task_id"], "result", report), 404, "not_found")
        problem(other.send(task["task_id"], "password", password), 404, "not_found")
        assert agent.lease().json()["held"]
        own, agent.run_id = agent.run_id, str(uuid.uuid4())
        copied, fence_of_copy = agent.lease().json(), agent.fence
        assert (copied["held"], agent.tasks(0, lease_fence=fence_of_copy)["held"]) == (False, False)
        assert not agent.lease(release=True).json()["held"]
        agent.run_id = own
        assert agent.lease().json()["held"], "a copy does not give up the lease of the process that holds it"
        assert stage.bmc(machine.node_id)["task"]["outcome"] is None
        assert agent.send(task["task_id"], "result", report).json()["applied"]


def test_a_token_enrols_what_it_was_made_for_alone(stage: Stage, site: Site, tmp_path: Path) -> None:
    agent = RawAgent(stage, site, "a", tmp_path)
    of_node = stage.admin.make(f"/admin/nodes/{stage.node()}/enrolment-token")["token"]
    of_agent = stage.admin.make(f"/admin/sites/{site.id}/agents", {"name": "b"})["token"]
    for path, token in (("/sites/enroll", of_node), ("/nodes/enroll", of_agent)):
        body = {"token": token, "hardware_id": "hw", "csr_pem": signing_request(agent.key)}
        problem(Caller(stage.http, None).call("POST", path, body), 401, "unauthenticated")
    assert [one["state"] for one in site.read()["agents"]] == ["active", "registered"]


BODIES: tuple[bytes, ...] = (
    b"", b"null", b"[]", b"{}", b"{", b"\xff\xfe", b"[" * 100_000, b'{"run_id": "' + b"x" * 3_000_000 + b'"}',
    b'{"run_id": "\\u0000", "agent_version": "\\u0000", "sealing_key": 1e999}',
)  # fmt: skip


def test_empty_huge_and_malformed_bodies_are_refused_by_code(stage: Stage, site: Site, tmp_path: Path) -> None:
    agent = RawAgent(stage, site, "a", tmp_path)
    task = f"/site/v1/tasks/{uuid.uuid4()}"
    for path in ("/site/v1/lease", "/site/v1/certificate", f"{task}/password", f"{task}/progress", f"{task}/result"):
        for body in BODIES:
            answer = agent.http.post(path, content=body, headers={"content-type": "application/json"})
            assert answer.status_code in (400, 413, 422), (path, body[:40], answer.text[:200])
            assert answer.json()["code"], (path, body[:40])
    for query in (
        {},
        {"run_id": "x"},
        {"lease_fence": -1},
        {"lease_fence": 2**70},
        {"limit": KNOWN_BMC_TASKS_MAX + 1},
        {"limit": -1},
        {"reach_limit": KNOWN_BMC_TASKS_MAX + 1},
        {"timeout_seconds": 61},
    ):
        wanted: dict[str, Any] = {
            "run_id": agent.run_id,
            "lease_fence": 0,
            "timeout_seconds": 0,
            **query,
            **({} if query else {"x": 1}),
        }
        problem(agent.http.get("/site/v1/tasks/wait", params=wanted), 422, "invalid")
    known: list[tuple[str, Any]] = [
        ("run_id", agent.run_id),
        ("lease_fence", "0"),
        *(("known", str(uuid.uuid4())) for _ in range(KNOWN_BMC_TASKS_MAX + 1)),
    ]
    problem(agent.http.get("/site/v1/tasks/wait", params=known), 422, "invalid")
    assert site.read()["lease"] is None


def test_the_first_stored_password_of_a_rotation_stays(stage: Stage, site: Site, tmp_path: Path) -> None:
    agent = RawAgent(stage, site, "a", tmp_path)
    agent.lease()
    with stage.machine() as machine:
        site.put_bmc(machine)
        stage.request(machine.node_id, "rotate")
        (task,) = agent.tasks()["tasks"]
        fence = stage.fleet.one("select fence from bmc_tasks where id = %s", task["task_id"])
        body = {
            "fence": fence,
            "lease_fence": agent.fence,
            "generation": 2,
            "sealed": {site.id: "one", agent.id: "one"},
        }
        for sealed in ({agent.id: "x"}, {site.id: "x"}, {site.id: "x", agent.id: "x", str(uuid.uuid4()): "x"}):
            problem(agent.send(task["task_id"], "password", {**body, "sealed": sealed}), 422, "invalid")
        problem(agent.send(task["task_id"], "password", {**body, "generation": 3}), 422, "invalid")
        assert agent.send(task["task_id"], "password", body).json()["stored"]
        second = agent.send(task["task_id"], "password", {**body, "sealed": {site.id: "two", agent.id: "two"}}).json()
        assert (second["generation"], second["sealed"][agent.id]) == (2, "one")
        done = {"fence": fence, "lease_fence": agent.fence, "outcome": "completed", "generation": 1}
        problem(agent.send(task["task_id"], "result", done), 422, "invalid")
        problem(agent.send(str(uuid.uuid4()), "result", done), 404, "not_found")
        assert stage.bmc(machine.node_id)["pending_generation"] == 2
        assert agent.send(task["task_id"], "result", {**done, "generation": 2}).json()["applied"]
        assert stage.bmc(machine.node_id)["generation"] == 2
