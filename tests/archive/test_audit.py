"""Old rows of the audit leave for the archive, through one function, and the rest of the chain still verifies."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from berth.cli.deployment.archive import running
from berth.cli.deployment.archive.chains import find_audit_row, judge
from berth.cli.deployment.archive.crash_points import CrashPoint
from berth.cli.deployment.archive.directory import Directory
from berth.cli.deployment.archive.manifests import digest_of
from berth.cli.deployment.archive.problems import ArchiveProblem
from berth.cli.deployment.archive.running import Archived, Retention, run_archive
from migrations.roles import Role
from orchestrator.verification.all_checks import run_checks
from tests.archive.ended import violations
from tests.archive.killing import killed_run
from tests.archive.old_audit import chain_ago, sequences, tamper
from tests.at_length import at_length
from tests.databases import as_role

KEPT = Retention(400, 800)


@pytest.fixture
def owner(database_url: str) -> Iterator[psycopg.Connection]:
    """The owner of the database, which has seven rows of 900 days ago, three of 700 days ago and two of today."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(
            "insert into audit (principal_kind, principal_id, action, subject, detail)"
            " values ('system', 'test', 'thing.turn', 'things/x', '{\"n\": 1.50, \"m\": -1e30}')"
        )
        for days, rows in ((900, 6), (700, 3), (0, 2)):
            chain_ago(connection, days, rows)
        yield connection


def run(url: str, archive: Directory, retention: Retention = KEPT) -> Archived:
    """Run the archive as the operator's role."""
    return run_archive(as_role(url, Role.OPERATOR), archive, retention)


def anchor_of(connection: psycopg.Connection) -> tuple[int, str]:
    """The row that the chain continues."""
    row = connection.execute("select sequence, encode(hash, 'hex') from audit_anchor").fetchone()
    assert row is not None
    return int(row[0]), str(row[1])


def test_old_rows_are_sealed_and_deleted_and_the_chain_continues_their_last_hash(
    database_url: str, owner: psycopg.Connection, tmp_path: Path
) -> None:
    hashes: dict[int, str] = dict(owner.execute("select sequence, encode(hash, 'hex') from audit_chain").fetchall())
    archive = Directory(tmp_path / "archive")
    done = run(database_url, archive)
    assert (done.segments, done.audit_rows, done.audit_held_at) == (1, 7, None)
    assert sequences(owner) == list(range(8, 13))
    assert anchor_of(owner) == (7, hashes[7])
    judged = judge(archive)
    assert (judged.audit_rows, judged.audit_head, judged.violations) == (7, f"7:{hashes[7]}", [])
    found = find_audit_row(archive, 3)
    assert found is not None
    assert (found["sequence"], found["subject"], found["hash"]) == (3, "things/1", hashes[3])
    assert violations(database_url) == {}
    chain_ago(owner, 0, 1)
    (recorded,) = owner.execute("select subject, detail from audit where action = 'audit.archive'").fetchall()
    assert (recorded[0], recorded[1]["first"], recorded[1]["last"], recorded[1]["hash"]) == (
        "archive/1",
        1,
        7,
        hashes[7],
    )
    later = run(database_url, archive, Retention(400, 600))
    assert (later.segments, later.audit_rows) == (1, 3)
    assert judge(archive).violations == []
    assert violations(database_url) == {}
    assert run(database_url, archive, Retention(400, 600)).segments == 0


def test_the_audit_is_kept_for_ever_unless_a_retention_is_set(
    database_url: str, owner: psycopg.Connection, tmp_path: Path
) -> None:
    assert run(database_url, Directory(tmp_path / "archive"), Retention(400)).segments == 0
    assert len(sequences(owner)) == 12


def test_the_newest_row_stays_however_old_it_is(database_url: str, tmp_path: Path) -> None:
    with psycopg.connect(database_url, autocommit=True) as owner:
        chain_ago(owner, 900, 3)
        assert run(database_url, Directory(tmp_path / "archive")).audit_rows == 2
        assert sequences(owner) == [3]
        assert violations(database_url) == {}


def test_segments_of_the_audit_are_bounded(
    database_url: str, owner: psycopg.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "AUDIT_ROWS_MAX", 3)
    archive = Directory(tmp_path / "archive")
    done = run(database_url, archive)
    assert (done.segments, done.audit_rows) == (3, 7)
    monkeypatch.setattr(running, "SEGMENT_BYTES_MAX", 10)
    assert run(database_url, archive, Retention(400, 600)).segments == 3
    judged = judge(archive)
    assert (judged.manifests, judged.audit_rows, judged.violations) == (6, 10, [])
    assert violations(database_url) == {}


def test_the_proof_of_a_cleanup_stays_as_long_as_its_allocation(database_url: str, tmp_path: Path) -> None:
    with psycopg.connect(database_url, autocommit=True) as owner:
        chain_ago(owner, 900, 2)
        owner.execute("set session_replication_role = replica")
        (made,) = owner.execute(
            "insert into allocations (tenant_id, sku, shape, gpu_model, gpus, region, image, price_version, ssh_public_keys,"
            " node_id, claim_id, operation_key, operation_fingerprint, correlation_id, waits_for, waits_since, waits_until)"
            " select uuidv7(), 's', 'gpu_slice', 'H100', 1, 'eu-1', 'i', 1, '{}', uuidv7(), 1, 'k', sha256(''), uuidv7(),"
            " 'worker', clock_timestamp(), clock_timestamp() + interval '1 day' returning id"
        ).fetchone() or (None,)
        owner.execute("reset session_replication_role")
        owner.execute(
            "insert into audit (principal_kind, principal_id, action, subject)"
            " values ('admin', 'k', 'allocation.force_cleanup', 'allocations'),"
            " ('admin', 'k', 'allocation.force_cleanup', 'allocations/' || %s::uuid)",
            (made,),
        )
        chain_ago(owner, 900)
        chain_ago(owner, 900, 2)
        done = run(database_url, Directory(tmp_path / "archive"))
        assert (done.audit_rows, done.audit_held_at) == (3, 4)
        assert sequences(owner) == [4, 5, 6]
        tamper(owner, "delete from allocations")
        assert run(database_url, Directory(tmp_path / "archive")).audit_rows == 2


def test_a_chain_that_does_not_hold_is_not_archived(
    database_url: str, owner: psycopg.Connection, tmp_path: Path
) -> None:
    tamper(owner, "update audit_chain set action = 'thing.leave' where sequence = 5")
    with pytest.raises(ArchiveProblem, match="audit row 5 in the database does not continue the chain") as broken:
        run(database_url, Directory(tmp_path / "archive"))
    assert broken.value.code == "audit_broken"
    assert len(sequences(owner)) == 12
    assert Directory(tmp_path / "archive").names() == []


@pytest.mark.parametrize("point", at_length(CrashPoint, [CrashPoint.BEFORE_DELETE_COMMIT]))
def test_nothing_is_lost_when_the_command_is_killed(
    database_url: str, owner: psycopg.Connection, tmp_path: Path, point: CrashPoint
) -> None:
    archive = Directory(tmp_path / "archive")
    killed_run(database_url, str(tmp_path / "archive"), point, BERTH_AUDIT_RETENTION_DAYS="800")
    assert (sequences(owner)[0] == 8) == (point is CrashPoint.AFTER_DELETE_COMMIT)
    done = run(database_url, archive)
    assert done.resumed == (point in {CrashPoint.AFTER_MANIFEST, CrashPoint.BEFORE_DELETE_COMMIT})
    assert sequences(owner)[0] == 8
    judged = judge(archive)
    assert (judged.audit_rows, judged.violations) == (7, [])
    assert violations(database_url) == {}


REFUSED: dict[str, tuple[str, str]] = {
    "a plain delete": ("delete from audit_chain where sequence < 3", "permission denied"),
    "the anchor moved": ("update audit_anchor set sequence = 2", "permission denied"),
    "no segment": ("select audit_forget(1)", "contains no rows of the audit"),
    "a gap before it": ("select seal(1, 2, 3, 3), audit_forget(1)", "or they must stay"),
    "another hash": ("select seal(1, 1, 3, 4), audit_forget(1)", "or they must stay"),
    "a row of the last 30 days": ("select seal(1, 1, 11, 11), audit_forget(1)", "or they must stay"),
    "rows that a gap has": ("select audit_forget(1)", "the audit has 6 of the rows 1 to 7"),
}
SEAL = """
create function seal(p_sequence bigint, p_first bigint, p_last bigint, p_hash_of bigint) returns void language sql as $$
insert into archive_segments (sequence, kind, manifest_sha256, destination, deleted, audit_first, audit_last, audit_hash)
select p_sequence, 'audit', repeat('0', 64), 'd', p_last - p_first + 1, p_first, p_last, hash
from audit_chain where sequence = p_hash_of $$
"""


@pytest.mark.parametrize("name", REFUSED)
def test_there_is_one_way_out_and_it_is_narrow(database_url: str, owner: psycopg.Connection, name: str) -> None:
    statement, refusal = REFUSED[name]
    owner.execute(SEAL)
    left = 12
    if name == "rows that a gap has":
        tamper(owner, "delete from audit_chain where sequence = 4")
        owner.execute("select seal(1, 1, 7, 7)")
        left = 11
    with (
        psycopg.connect(as_role(database_url, Role.OPERATOR), autocommit=True) as operator,
        pytest.raises(psycopg.DatabaseError, match=refusal),
    ):
        operator.execute(statement.encode())
    assert len(sequences(owner)) == left
    assert anchor_of(owner)[0] == 0


def test_the_function_keeps_the_newest_row(database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as owner:
        chain_ago(owner, 900, 3)
        owner.execute(SEAL)
        owner.execute("select seal(1, 1, 3, 3)")
        with pytest.raises(psycopg.DatabaseError, match="or they must stay"):
            owner.execute("select audit_forget(1)")
        assert sequences(owner) == [1, 2, 3]


TAMPERED = {
    "the first row behind the anchor": (
        "delete from audit_chain where sequence = 8", "audit row 9: rows 8 to 8 are missing before it",
    ),
    "the anchor": (
        "update audit_anchor set hash = sha256('x')",
        "the audit begins behind row 7, and the segments of the archive end with row 7 or another hash",
    ),
    "rows and the anchor": (
        (
            "with d as (delete from audit_chain where sequence < 10)"
            " update audit_anchor set sequence = 9, hash = (select hash from copied where sequence = 9)"
        ),
        "the audit begins behind row 9, and the segments of the archive end with row 7",
    ),
    "a segment": (
        "update archive_segments set audit_first = 2, deleted = 6",
        "segment 1 of the archive begins with audit row 2, and the one before ends with 0",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TAMPERED)
def test_verify_finds_rows_that_left_another_way(
    database_url: str, owner: psycopg.Connection, tmp_path: Path, name: str
) -> None:
    statement, sentence = TAMPERED[name]
    owner.execute("create temporary table copied as select * from audit_chain")
    run(database_url, Directory(tmp_path / "archive"))
    assert violations(database_url) == {}
    tamper(owner, statement)
    (found,) = [verdict for verdict in run_checks(database_url) if verdict.promise == "audit"]
    assert any(violation.startswith(sentence) for violation in found.violations), found.violations


def test_the_archive_is_checked_by_the_hashes_of_the_audit_too(
    database_url: str, owner: psycopg.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "AUDIT_ROWS_MAX", 3)
    archive = Directory(tmp_path / "archive")
    run(database_url, archive)
    manifest = json.loads(archive.read("manifests/000000000002.json"))
    (segment,) = manifest["segments"]
    changed = gzip.compress(gzip.decompress(archive.read(segment["name"])).replace(b"things/3", b"things/9"), mtime=0)
    (tmp_path / "archive" / segment["name"]).write_bytes(changed)
    assert any("another SHA-256" in violation for violation in judge(archive).violations)
    # Manifests that are written anew too hide the change of the file, but not that of the row.
    segment["sha256"] = digest_of(changed)
    (tmp_path / "archive" / "manifests/000000000002.json").write_text(json.dumps(manifest))
    assert any("audit row 5 in" in violation for violation in judge(archive).violations)
