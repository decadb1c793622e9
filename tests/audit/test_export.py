"""`berth audit export`: OCSF events, one a line; resumes by sequence without a gap or a repetition, while rows are written."""

from __future__ import annotations

import json
import random
import threading
from pathlib import Path
from typing import Any

import psycopg
import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from berth.cli.commands import audit
from berth.client import AuditEntry, Client
from berth.client.audit.ocsf import ocsf_event
from orchestrator.http.audited.actions import ACTIONS
from tests.api.calling import Caller, fresh, new_tenant, ssh_key
from tests.client.deployment import Deployment
from tests.support.shell import Shell, bare, deployment
from tests.support.waiting import wait_for

__all__ = ["bare", "deployment"]

SCHEMA = json.loads((Path(__file__).parent / "ocsf_api_activity.json").read_text())
INSERT = (
    b"insert into audit (principal_kind, principal_id, action, subject) values ('system', 'test', 'thing.turn', %s)"
)
WRITERS, ROUNDS = 3, 25


def _exported(shell: Shell, options: str = "") -> list[dict[str, Any]]:
    done = shell.run(f"audit export {options}")
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


def _subject(event: dict[str, Any]) -> str:
    (resource,) = event["resources"]
    kind, name = resource["type"], resource["uid"]
    return kind if kind == name else f"{kind}/{name}"


def _add_key(tenant: Caller) -> str:
    return str(tenant.make("/ssh-keys", {"name": fresh("key"), "public_key": ssh_key()})["id"])


def test_events_conform_to_the_schema_and_name_what_was_done(deployment: Deployment) -> None:
    Draft202012Validator.check_schema(SCHEMA)
    tenant = new_tenant(deployment.admin)
    key = _add_key(tenant)
    assert tenant.call("GET", "/admin/nodes").status_code == 403
    assert tenant.call("DELETE", f"/ssh-keys/{key}").status_code == 204
    deployment.database.execute(INSERT, ("things/1",))
    events = _exported(Shell(deployment.address, deployment.admin.key))
    for event in events:
        Draft202012Validator(SCHEMA).validate(event)
    # The refused read was queued, so its row may be chained later than those of the writes.
    *_, made = [event for event in events if event["api"]["operation"] == "ssh_key.create"]
    *_, refused = [event for event in events if event["api"]["operation"] == "node.read"]
    *_, deleted = [event for event in events if event["api"]["operation"] == "ssh_key.delete"]
    *_, turned = [event for event in events if event["api"]["operation"] == "thing.turn"]
    assert (made["activity_id"], made["type_uid"], made["api"]["operation"]) == (1, 600_301, "ssh_key.create")
    assert made["resources"] == [{"type": "ssh-keys", "uid": key}]
    assert made["actor"]["user"]["org"] == {"uid": tenant.tenant_id}
    assert made["actor"]["user"]["groups"] == [{"name": "admin"}]
    assert (made["src_endpoint"], made["http_response"]) == ({"ip": "127.0.0.1"}, {"code": 201})
    assert made["http_request"]["user_agent"].startswith("python-httpx")
    assert made["api"]["request"]["uid"]
    assert (refused["activity_id"], refused["status_id"], refused["status_code"]) == (2, 2, "forbidden")
    assert (deleted["activity_id"], deleted["status_id"]) == (4, 1)
    assert turned["src_endpoint"] == {"name": "system"}
    assert "http_request" not in turned


@pytest.mark.parametrize("action", sorted({*ACTIONS.values(), "node.read", "unknown", "operation.fence"}))
def test_the_events_of_every_action_conform_to_the_schema(action: str) -> None:
    entry = {
        "sequence": 1, "id": 1, "at": "2026-03-01T12:00:30.123456Z", "recorded_at": "2026-03-01T12:00:31Z",
        "principal": {"kind": "stranger", "id": "others", "role": None}, "action": action, "subject": "operations",
        "code": "quota", "status": 409, "detail": {"none": None}, "hash": "0" * 64,
    }  # fmt: skip
    event = ocsf_event(AuditEntry.model_validate(entry))
    Draft202012Validator(SCHEMA).validate(event)
    assert event["time"] == 1_772_366_430_123
    assert event["unmapped"]["detail"] == {"none": None}
    assert event["unmapped"]["at"] == "2026-03-01T12:00:30.123456+00:00"


def test_a_tenant_exports_its_own_rows(deployment: Deployment) -> None:
    tenant, other = new_tenant(deployment.admin), new_tenant(deployment.admin)
    own = [_add_key(tenant) for _ in range(3)]
    _add_key(other)
    events = _exported(Shell(deployment.address, tenant.key))
    assert [event["resources"][0]["uid"] for event in events] == own
    after = events[1]["metadata"]["sequence"]
    assert _exported(Shell(deployment.address, tenant.key), f"--after {after}") == events[2:]


def test_an_interrupted_export_resumes_without_a_gap_or_a_repetition(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writers commit in any order, sequencers chain beside the export, and each run is cut after some whole lines."""
    monkeypatch.setattr(audit, "PAGE", 7)
    chosen, shell = random.Random(6003), Shell(deployment.address, deployment.admin.key)
    url = deployment.database.info.dsn + f" password={deployment.database.info.password}"

    def write(writer: int) -> None:
        with psycopg.connect(url) as connection:
            for number in range(ROUNDS):
                for part in range(1 + (writer + number) % 3):
                    connection.execute(INSERT, (f"w/{writer}-{number}-{part}",))
                if number % 4 == writer:
                    connection.rollback()
                else:
                    connection.commit()

    writers = [threading.Thread(target=write, args=(number,)) for number in range(WRITERS)]
    for thread in writers:
        thread.start()
    found: list[dict[str, Any]] = []
    runs = 0
    while True:
        over = not any(thread.is_alive() for thread in writers)
        after = found[-1]["metadata"]["sequence"] if found else 0
        events = _exported(shell, f"--after {after}")
        if over and not events:
            break
        found += events[: chosen.randint(0, 40)]
        runs += 1
    stored = deployment.database.execute("select sequence, subject from audit_chain order by sequence").fetchall()
    exported = [(event["metadata"]["sequence"], _subject(event)) for event in found]
    assert exported == stored
    assert [sequence for sequence, _ in stored] == [*range(1, len(stored) + 1)]
    committed = [number for writer in range(WRITERS) for number in range(ROUNDS) if number % 4 != writer]
    assert len({subject.rpartition("-")[0] for _, subject in stored if subject.startswith("w/")}) == len(committed)
    assert runs > 3


def test_export_reads_page_by_page_and_follows(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "PAGE", 2)
    monkeypatch.setattr(audit, "FOLLOW_SECONDS", 0.01)
    after = deployment.count("select coalesce(max(sequence), 0) from audit_chain")
    for number in range(5):
        deployment.database.execute(INSERT, (f"things/{number}",))
    with Client(deployment.address, deployment.admin.key) as client:
        requests: list[object] = []
        run = client.run
        monkeypatch.setattr(client, "run", lambda call: requests.append(call) or run(call))  # type: ignore[func-returns-value]
        entries = audit._entries(client, after, follow=True, own=False)
        read = [next(entries).subject for _ in range(2)]
        assert (read, len(requests)) == (["things/0", "things/1"], 1)
        read += [next(entries).subject for _ in range(3)]
        waiting = threading.Thread(target=lambda: read.append(next(entries).subject))
        waiting.start()
        wait_for(lambda: len(requests) > 4, "the export asks again at the end")
        deployment.database.execute(INSERT, ("things/5",))
        waiting.join()
    assert read == [f"things/{number}" for number in range(6)]
