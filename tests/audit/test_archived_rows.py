"""The audit begins later once rows are archived: no list skips them in silence, and the rest of the chain still verifies."""

from __future__ import annotations

import json

import pytest

from berth.cli.commands import audit
from tests.api.calling import Caller, fresh, new_tenant, problem, ssh_key
from tests.archive.old_audit import chain_ago, sequences, tamper
from tests.client.deployment import Deployment
from tests.support.shell import Shell, bare, deployment

__all__ = ["bare", "deployment"]

ARCHIVED = 5
EMPTY = (
    "delete from audit_chain",
    "delete from audit_pending",
    "delete from archive_segments",
    "update audit_head set sequence = 0, recorded_at = '-infinity', hash = decode(repeat('00', 32), 'hex')",
    "update audit_anchor set sequence = 0, hash = decode(repeat('00', 32), 'hex')",
)
SEAL = """
insert into archive_segments (sequence, kind, manifest_sha256, destination, deleted, audit_first, audit_last, audit_hash)
select 1, 'audit', repeat('0', 64), 'd', sequence, 1, sequence, hash from audit_chain where sequence = 5
"""


@pytest.fixture
def hashes(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> dict[int, str]:
    """Hashes by sequence of the audit, whose first five rows are archived."""
    monkeypatch.setattr(audit, "PAGE", 3)
    for statement in EMPTY:
        tamper(deployment.database, statement)
    for days in (900, 0):
        chain_ago(deployment.database, days, ARCHIVED)
    found = dict(deployment.database.execute("select sequence, encode(hash, 'hex') from audit_chain").fetchall())
    deployment.database.execute(SEAL.encode())
    assert deployment.count("select audit_forget(1)") == ARCHIVED
    assert sequences(deployment.database) == list(range(6, 11))
    return found


def _add_key(tenant: Caller) -> str:
    return str(tenant.make("/ssh-keys", {"name": fresh("key"), "public_key": ssh_key()})["id"])


def test_a_list_begins_with_the_oldest_row_and_a_position_before_it_is_refused(
    deployment: Deployment, hashes: dict[int, str]
) -> None:
    admin = deployment.admin
    page = admin.get("/admin/audit", limit="2")
    assert [entry["sequence"] for entry in page["items"]] == [6, 7]
    assert admin.get("/admin/audit", limit="1", after="5")["items"] == page["items"][:1]
    for after in ("0", "4"):
        refused = problem(admin.call("GET", "/admin/audit", after=after), 410, "audit_truncated")
        assert (refused["first_sequence"], refused["hash_before"], refused["outcome"]) == (6, hashes[5], "not_done")
    problem(
        admin.call("GET", "/admin/audit", after="4", action="thing.turn", since="2020-01-01T00:00:00Z"),
        410,
        "audit_truncated",
    )


def test_a_cursor_from_before_the_archive_is_refused(deployment: Deployment, hashes: dict[int, str]) -> None:
    admin, database = deployment.admin, deployment.database
    for statement in EMPTY:
        tamper(database, statement)
    for days in (900, 0):
        chain_ago(database, days, ARCHIVED)
    cursor = admin.get("/admin/audit", limit="2")["next_cursor"]
    assert [entry["sequence"] for entry in admin.get("/admin/audit", limit="1", cursor=cursor)["items"]] == [3]
    database.execute(SEAL.encode())
    assert deployment.count("select audit_forget(1)") == ARCHIVED
    problem(admin.call("GET", "/admin/audit", cursor=cursor), 410, "audit_truncated")


def test_a_tenants_list_is_refused_in_the_same_way(deployment: Deployment, hashes: dict[int, str]) -> None:
    tenant = new_tenant(deployment.admin)
    keys = [_add_key(tenant) for _ in range(2)]
    assert [entry["subject"] for entry in tenant.get("/audit")["items"]] == [f"ssh-keys/{one}" for one in keys]
    assert problem(tenant.call("GET", "/audit", after="1"), 410, "audit_truncated")["first_sequence"] == 6


def test_the_rest_of_the_chain_verifies_from_its_anchor(deployment: Deployment, hashes: dict[int, str]) -> None:
    shell = Shell(deployment.address, deployment.admin.key)
    found = shell.json("audit verify")
    assert (found["first"], found["archived_to"], found["checked"]) == (6, 5, found["last"] - 5)
    assert f"their last hash is {hashes[5]}" in shell.run("audit verify").stdout
    anchored = shell.run(f"audit verify --from 5 --expect-hash {hashes[5]}")
    assert (anchored.exit_code, "archived" in anchored.stdout) == (0, False)
    for start in (6, 7, 9):
        assert shell.json(f"audit verify --from {start} --expect-hash {hashes[start]}")["verified"]
    assert shell.json(f"audit verify --expect-head 5:{hashes[5]}")["verified"]
    sentence = shell.refused(f"audit verify --from 3 --expect-hash {hashes[3]}", "audit_truncated")
    assert "row 3 is in the archive, with all rows up to 5" in sentence
    shell.refused(f"audit verify --expect-head 4:{hashes[4]}", "audit_truncated")


def test_an_anchor_that_is_not_the_archived_row_is_found(deployment: Deployment, hashes: dict[int, str]) -> None:
    shell = Shell(deployment.address, deployment.admin.key)
    other = "1" * 64
    for options in (f"--from 5 --expect-hash {other}", f"--expect-head 5:{other}"):
        done = shell.run(f"audit verify {options} --output json")
        assert (done.exit_code, json.loads(done.stdout)["sequence"]) == (1, 5)
    tamper(deployment.database, "delete from audit_chain where sequence = 6")
    done = shell.run("audit verify --output json")
    assert (done.exit_code, json.loads(done.stdout)["sequence"]) == (1, 6)


def test_an_export_begins_with_the_oldest_row_and_a_position_before_it_is_refused(
    deployment: Deployment, hashes: dict[int, str]
) -> None:
    shell = Shell(deployment.address, deployment.admin.key)
    lines = shell.run("audit export").stdout.split("\n")[:-1]
    exported = [json.loads(line)["metadata"]["sequence"] for line in lines]
    assert exported[:5] == [6, 7, 8, 9, 10]
    refused = shell.run("audit export --after 2")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "the audit begins with row 6" in refused.stderr
