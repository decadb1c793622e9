"""`berth kv` and the client's calls of keys and values against a real API: what they print and how they end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from berth.client import Client, Malformed, NotFound, VersionInFuture
from berth.client.calls.keyvalue import delete_key, delete_range, unchanged_key, unchanged_range, write_key
from tests.api.calling import new_tenant
from tests.client.deployment import Deployment
from tests.support.shell import Shell, bare, deployment

__all__ = ["bare", "deployment"]


def test_keys_from_the_command_line(deployment: Deployment, tmp_path: Path) -> None:
    shell = Shell(deployment.address, new_tenant(deployment.admin).key)
    made = shell.json("kv put leader node-1 --idempotency-key kv-1")
    assert (made["status"], made["request_id"]) == ("committed", "kv-1")
    assert shell.json("kv get leader")["version"] == made["version"]
    assert shell.json("kv get 6c6561646572 --form hex")["value"] == "bm9kZS0x"
    refused = "kv put leader node-2 --unchanged-since 0"
    text, for_programs = shell.run(refused), shell.run(f"{refused} --output json")
    assert (text.exit_code, for_programs.exit_code) == (1, 1)
    assert "not committed" in text.output
    assert json.loads(for_programs.stdout)["conflicts"] == [unchanged_key(b"leader", 0)]
    shell.json(f"kv put leader node-2 --unchanged-since {made['version']} --idempotency-key kv-2")
    shell.refused("kv get absent", "not_found")
    file = tmp_path / "transaction.json"
    file.write_text(
        json.dumps({"request_id": "a-request-of-its-own", "operations": [write_key(b"m", b"1"), write_key(b"z", b"2")]})
    )
    assert shell.json(f"kv commit {file}")["request_id"] == "a-request-of-its-own"
    assert [item["key"] for item in shell.json("kv range")["items"]] == ["bGVhZGVy", "bQ==", "eg=="]
    assert [item["key"] for item in shell.json("kv range m z")["items"]] == ["bQ=="]
    file.write_text("{")
    shell.refused(f"kv commit {file}", "unreadable_file")


@pytest.fixture
def client(deployment: Deployment) -> Iterator[Client]:
    """Of a tenant with an empty namespace."""
    with Client(deployment.address, new_tenant(deployment.admin).key) as made:
        yield made


def test_keys_from_a_program(client: Client) -> None:
    made = client.commit_transaction(operations=[write_key(b"\xff\0", b""), write_key(b"b", b"2")])
    assert made.version is not None
    entry = client.get_key(b"\xff\0", min_version=made.version)
    assert (entry.key, entry.value, entry.version) == (b"\xff\0", b"", made.version)
    page = client.list_keys(end=b"\xff")
    assert [(item.key, item.value) for item in page.items] == [(b"b", b"2")]
    gone = client.commit_transaction(
        operations=[delete_key(b"b"), delete_range(b"\xff", b"\xff\xff")],
        preconditions=[unchanged_key(b"b"), unchanged_range(b"c", b"d", 0)],
        read_version=page.read_version,
        leader_id=page.leader_id,
    )
    assert gone.status == "committed"
    told = client.get_commit_status(gone.request_id, min_version=made.version)
    assert (told.status, told.version) == ("committed", gone.version)
    refused = client.commit_transaction(preconditions=[unchanged_key(b"b")], read_version=made.version)
    assert refused.conflicts == [unchanged_key(b"b", made.version)]
    with pytest.raises(NotFound) as missing:
        client.get_key(b"b")
    assert missing.value.extra["read_version"] >= (gone.version or 0)
    with pytest.raises(VersionInFuture):
        client.commit_transaction(read_version=2**62)
    with pytest.raises(Malformed):
        client.commit_transaction(operations=[{"type": "increment", "key": "YQ=="}])
