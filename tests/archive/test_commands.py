"""`berth archive` as an operator runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.archive.ended import age, left_of, seeded_with
from tests.berth.commands import assert_one_sentence, berth


@pytest.mark.full
def test_an_operator_archives_checks_and_reads(database_url: str, tmp_path: Path) -> None:
    _, (young, old) = seeded_with(database_url, 2)
    old = age(database_url, old, 401)
    archive = str(tmp_path / "archive")
    done = berth("archive", "run", "--to", archive, "--output", "json", BERTH_DATABASE_URL=database_url)
    assert json.loads(done.stdout) == {
        "segments": 1,
        "deleted": 1,
        "skipped": 0,
        "resumed": 0,
        "audit_rows": 0,
        "deliveries": 0,
        "deliveries_skipped": 0,
        "audit_held_at": None,
        "audit_unsent_from": None,
    }, done.stderr
    assert (left_of(database_url, old), left_of(database_url, young) != []) == ([], True)
    sound = berth("archive", "verify", archive)
    assert sound.stdout.startswith("1 manifests, 1 allocations, 0 of them"), sound.stderr
    shown = berth("archive", "show", archive, "--allocation", str(old))
    assert json.loads(shown.stdout)["rows"]["allocations"][0]["id"] == str(old)
    unknown = berth("archive", "show", archive, "--allocation", str(young))
    assert_one_sentence(unknown, 1, "contains no allocation")
    (segment,) = Path(archive).glob("*/*.ndjson.gz")
    segment.unlink()
    damaged = berth("archive", "verify", archive, "--output", "json")
    assert damaged.returncode == 1
    assert "cannot be read" in json.loads(damaged.stdout)["violations"][0]


def test_a_retention_of_zero_keeps_everything(database_url: str, tmp_path: Path) -> None:
    _, (ended,) = seeded_with(database_url, 1)
    settings = {"BERTH_DATABASE_URL": database_url, "BERTH_RETENTION_DAYS": "0"}
    refused = berth("archive", "run", "--to", str(tmp_path / "archive"), **settings)
    assert_one_sentence(refused, 1, "BERTH_RETENTION_DAYS is 0")
    assert left_of(database_url, ended) != []


@pytest.mark.parametrize(("days", "audit_days"), [("400", "400"), ("10", "29")])
def test_the_audit_is_kept_longer_than_allocations_and_30_days(
    database_url: str, tmp_path: Path, days: str, audit_days: str
) -> None:
    _, (ended,) = seeded_with(database_url, 1)
    ended = age(database_url, ended, 401)
    settings = {"BERTH_RETENTION_DAYS": days, "BERTH_AUDIT_RETENTION_DAYS": audit_days}
    archive = tmp_path / "archive"
    refused = berth("archive", "run", "--to", str(archive), BERTH_DATABASE_URL=database_url, **settings)
    assert_one_sentence(refused, 1, f"BERTH_AUDIT_RETENTION_DAYS is {audit_days}")
    assert left_of(database_url, ended) != []
    assert not archive.exists()
