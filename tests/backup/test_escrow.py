"""The escrow: what is in it, that only the recovery key opens it, and that it opens what a restored database holds."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from fnmatch import fnmatch
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from hypothesis import given, settings
from hypothesis import strategies as st

from berth.cli.deployment.backup import escrow
from berth.cli.deployment.backup.catalogue import DATA
from berth.cli.deployment.backup.crash_points import CrashPoint
from berth.cli.deployment.backup.key_files import (
    EXCLUDED_FILES,
    EXCLUDED_PROCESSES,
    EXCLUDED_SETTINGS,
    KEY_FILES,
    find_key_files,
)
from berth.cli.deployment.backup.problems import BackupProblem
from berth.cli.deployment.backup.scratch import scratch_server
from berth.local import secret_files
from berth.local.authority import ensure_authority
from deploy.environment_reference import processes
from orchestrator.webhooks.keys import load_webhook_keys
from tests.backup.killing import killed
from tests.backup.stage import Stage
from tests.deploy import deployment

NOW = datetime(2026, 11, 28, tzinfo=UTC)
PRIVATE = X25519PrivateKey.generate()
FILES = {"node-ca.key": b"-----BEGIN", "webhook.keys": bytes(range(256)), "empty": b""}


def refused(code: str, call: object, *arguments: object) -> str:
    """The call raises a problem with this code, whose message holds no key."""
    assert callable(call)
    with pytest.raises(BackupProblem) as raised:
        call(*arguments)
    assert raised.value.code == code, str(raised.value)
    return str(raised.value)


def excluded(name: str) -> bool:
    """Whether a file is excluded by name."""
    return any(fnmatch(name, pattern) for pattern in EXCLUDED_FILES)


def test_every_setting_that_names_a_file_is_escrowed_or_excluded_with_a_reason() -> None:
    found = {
        name
        for title, _, of_process in processes()
        if title not in EXCLUDED_PROCESSES
        for name in of_process.model_fields
        if name.endswith("_file")
    }
    named = {name for key in KEY_FILES for name in key.settings}
    of_nodes = {"root_keys_file"}
    assert found == (named - of_nodes) | EXCLUDED_SETTINGS.keys()
    assert not named & EXCLUDED_SETTINGS.keys()
    assert all(len(reason) > 5 for reason in (*EXCLUDED_SETTINGS.values(), *EXCLUDED_FILES.values()))


def test_every_file_of_a_deployment_is_escrowed_or_excluded(tmp_path: Path) -> None:
    directory = tmp_path / "secrets"
    deployment.make_secrets(directory)
    made = {path.name for path in directory.iterdir()}
    named = {key.deployed for key in KEY_FILES if key.deployed is not None}
    assert named <= made
    assert {name for name in made - named if not excluded(name)} == set()
    assert not any(excluded(name) for name in named)
    found = find_key_files(directory)
    assert found.keys() == {key.name for key in KEY_FILES if key.deployed is not None}
    assert found["webhook.keys"] == (directory / "webhook_keys").read_bytes()


def test_every_file_of_a_local_stack_is_escrowed_or_excluded(tmp_path: Path) -> None:
    ensure_authority(tmp_path, "berth.local")
    secret_files.role_passwords(tmp_path)
    secret_files.postgres_password(tmp_path)
    secret_files.backup_password(tmp_path)
    secret_files.nats_users(tmp_path)
    named = {key.local for key in KEY_FILES if key.local is not None}
    made = {path.name for path in tmp_path.iterdir()}
    assert {name for name in made - named if not excluded(name)} == set()
    assert find_key_files(tmp_path).keys() == {key.name for key in KEY_FILES if key.local is not None}
    (tmp_path / "webhook.keys").unlink()
    assert refused("key_files_missing", find_key_files, tmp_path)


def test_what_is_sealed_is_opened_and_nothing_of_it_is_readable() -> None:
    sealed = escrow.seal(FILES, PRIVATE.public_key(), NOW)
    assert escrow.unseal(sealed, PRIVATE) == FILES
    header = escrow.read_header(sealed)
    assert header.made_at == NOW.isoformat()
    assert header.lacks(FILES) == []
    assert header.lacks({**FILES, "node-ca.key": b"rotated", "new.key": b""}) == ["new.key", "node-ca.key"]
    assert all(content not in sealed for content in FILES.values() if content)
    assert sealed != escrow.seal(FILES, PRIVATE.public_key(), NOW), "an ephemeral key each time"


def test_every_changed_byte_is_found() -> None:
    sealed = escrow.seal({"k": b"secret"}, PRIVATE.public_key(), NOW)
    for place in range(len(sealed)):
        changed = bytearray(sealed)
        changed[place] ^= 1
        with pytest.raises(BackupProblem) as raised:
            escrow.unseal(bytes(changed), PRIVATE)
        assert raised.value.code in ("escrow_damaged", "escrow_other_key")
    for end in (0, 1, len(sealed) // 2, len(sealed) - 1):
        assert refused("escrow_damaged", escrow.unseal, sealed[:end], PRIVATE)


def test_a_file_cannot_be_renamed_to_another() -> None:
    header, _, body = escrow.seal(FILES, PRIVATE.public_key(), NOW).partition(b"\n")
    document = json.loads(header)
    document["made_at"] = "2030-01-01T00:00:00+00:00"
    assert refused(
        "escrow_damaged", escrow.unseal, json.dumps(document, sort_keys=True).encode() + b"\n" + body, PRIVATE
    )


def test_another_key_opens_nothing() -> None:
    assert refused(
        "escrow_other_key", escrow.unseal, escrow.seal(FILES, PRIVATE.public_key(), NOW), X25519PrivateKey.generate()
    )


def test_a_mistyped_public_key_is_refused() -> None:
    text = escrow.show_public(PRIVATE.public_key())
    assert escrow.read_public(f" {text}\n").public_bytes_raw() == PRIVATE.public_key().public_bytes_raw()
    for place in range(len(escrow.PUBLIC_PREFIX), len(text) - 1):
        mistyped = text[:place] + ("a" if text[place] != "a" else "b") + text[place + 1 :]
        assert refused("recovery_key_wrong", escrow.read_public, mistyped)
    for wrong in (
        "",
        "berth-recovery-",
        "ssh-ed25519 AAAA",
        text[:-1],
        text.removeprefix(escrow.PUBLIC_PREFIX),
        "berth-recovery-é",
    ):
        assert refused("recovery_key_wrong", escrow.read_public, wrong)
    assert refused("recovery_key_wrong", escrow.seal, FILES, X25519PublicKey.from_public_bytes(bytes(32)), NOW)


@settings(max_examples=30)
@given(st.dictionaries(st.text(min_size=1), st.binary(), max_size=5))
def test_any_files_come_back(files: dict[str, bytes]) -> None:
    assert escrow.unseal(escrow.seal(files, PRIVATE.public_key(), NOW), PRIVATE) == files


@given(st.binary(max_size=300))
def test_anything_else_is_no_escrow(content: bytes) -> None:
    assert refused("escrow_damaged", escrow.read_header, content)


def test_files_are_made_once_and_for_their_owner_alone(tmp_path: Path) -> None:
    private = tmp_path / "recovery.pem"
    public = escrow.new_key(private)
    assert private.stat().st_mode & 0o777 == 0o600
    before = private.read_bytes()
    assert refused("escrow_not_opened", escrow.new_key, private)
    assert private.read_bytes() == before
    stored = tmp_path / "one.escrow"
    stored.write_bytes(escrow.seal(FILES, escrow.read_public(public), NOW))
    key = escrow.read_private(private)
    assert escrow.open_into(stored, key, tmp_path / "opened") == sorted(FILES)
    assert {path.name: path.read_bytes() for path in (tmp_path / "opened").iterdir()} == FILES
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "opened").iterdir()} == {0o600}
    assert refused("escrow_not_opened", escrow.open_into, stored, key, tmp_path / "opened")
    stored.write_bytes(escrow.seal({"../outside": b"x"}, escrow.read_public(public), NOW))
    assert refused("escrow_damaged", escrow.open_into, stored, key, tmp_path / "third")
    assert not (tmp_path / "outside").exists()
    assert refused("recovery_key_wrong", escrow.read_private, stored)


@pytest.mark.full
def test_a_killed_escrow_leaves_the_one_before(stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "secrets").mkdir()
    ensure_authority(tmp_path / "secrets", "berth.local")
    stage.directory.claim_for("7000000000000000001")
    public = escrow.new_key(tmp_path / "recovery.pem")
    first = escrow.store(stage.directory, find_key_files(tmp_path / "secrets"), escrow.read_public(public))
    killed(stage, CrashPoint.BEFORE_ESCROW, "keys", "--to", public, "--secrets", str(tmp_path / "secrets"))
    assert list(stage.directory.keys.iterdir()) == [first]


def test_restored_keys_open_what_the_restored_database_holds(stage: Stage, tmp_path: Path) -> None:
    """A disaster: all that is left are the backup directory and the recovery private key."""
    (tmp_path / "secrets").mkdir()
    authority = ensure_authority(tmp_path / "secrets", "berth.local")
    webhook = uuid4()
    sealed = load_webhook_keys(authority.webhook_keys).seal(webhook, "whsec_of-the-tenant")
    with psycopg.connect(stage.server.url(), autocommit=True) as connection:
        connection.execute(
            "insert into webhooks (id, url, signing, keys, position, versions_max)"
            " values (%s, 'https://example.org', 'hmac', jsonb_build_array(jsonb_build_object('sealed', %s::text)), 0, 1)",
            (webhook, sealed),
        )
    try:
        backup = stage.back_up().backup
        public = escrow.new_key(tmp_path / "recovery.pem")
        stored = escrow.store(stage.directory, find_key_files(tmp_path / "secrets"), escrow.read_public(public))
    finally:
        with psycopg.connect(stage.server.url(), autocommit=True) as connection:
            connection.execute("delete from webhooks")
    escrow.open_into(stored, escrow.read_private(tmp_path / "recovery.pem"), tmp_path / "opened")
    with scratch_server(stage.directory.path / "scratch", None) as scratch:
        scratch.copy(
            stage.directory.base / backup.name / DATA, stage.directory.wal, backup.first_segment, backup.segment_bytes
        )
        scratch.start(None)
        with psycopg.connect(scratch.wait_restored("berth", 60.0)) as connection:
            row = connection.execute("select id, keys -> 0 ->> 'sealed' from webhooks").fetchone()
    assert row == (webhook, sealed)
    assert load_webhook_keys(tmp_path / "opened" / "webhook.keys").open(*row) == "whsec_of-the-tenant"
