"""Ended deliveries of webhooks leave for the archive, without a secret or a body; sweepers leave them to it while it is used."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from berth.cli.deployment.archive import delivery_rows, running
from berth.cli.deployment.archive.chains import find_delivery, judge
from berth.cli.deployment.archive.crash_points import CrashPoint
from berth.cli.deployment.archive.delivery_rows import Place
from berth.cli.deployment.archive.directory import Directory
from berth.cli.deployment.archive.finding import archive_finding
from berth.cli.deployment.archive.problems import ArchiveProblem
from berth.cli.deployment.archive.running import Archived, Retention, run_archive
from berth.local.servers import LocalPostgres
from migrations.roles import Role
from tests.allocations.driving import rows_of
from tests.allocations.seeding import connect
from tests.archive.ended import violations
from tests.archive.ended_deliveries import EXCERPT, HOST, SECRET, new_webhook, sweep
from tests.archive.killing import killed_run
from tests.databases import as_role, copied_database

KEPT = Retention(400, 0, 30)
BEFORE_SEALED = {CrashPoint.BEFORE_SEGMENT, CrashPoint.AFTER_SEGMENT}


def run(url: str, archive: Directory, retention: Retention = KEPT) -> Archived:
    """Run the archive as the operator's role."""
    return run_archive(as_role(url, Role.OPERATOR), archive, retention)


def lines_of(path: Path) -> list[str]:
    """The lines of every segment of deliveries."""
    files = sorted(path.glob("*/*-webhook_deliveries-*"))
    return [line for file in files for line in gzip.decompress(file.read_bytes()).decode().splitlines()]


class Interfering(Directory):
    """An archive that calls `then` once, after the first manifest was written and before rows are deleted."""

    def __init__(self, path: Path, then: Callable[[], object]) -> None:
        super().__init__(path)
        self._then: Callable[[], object] | None = then

    def write(self, name: str, content: bytes) -> None:
        """As `Directory.write`."""
        super().write(name, content)
        if name.startswith("manifests/") and self._then is not None:
            then, self._then = self._then, None
            then()


def test_what_ended_before_its_retention_is_sealed_and_deleted(database_url: str, tmp_path: Path) -> None:
    webhook, other = new_webhook(database_url), new_webhook(database_url)
    webhook.deliver(1, 3, days=40)
    webhook.deliver(4, 4, days=40, state="pending")
    webhook.deliver(5, 6, days=1)
    other.deliver(9, 11, days=31, state="failed")
    archive = Directory(tmp_path / "archive")
    done = run(database_url, archive)
    assert (done.segments, done.deliveries, done.deliveries_skipped, done.deleted) == (1, 6, 0, 0)
    assert (webhook.numbers(), other.numbers()) == ([4, 5, 6], [])
    judged = judge(archive)
    assert (judged.deliveries, judged.deliveries_repeated, judged.allocations, judged.violations) == (6, 0, 0, [])
    found = find_delivery(archive, Place(other.id, 10).key)
    assert found is not None
    assert (found["webhook_id"], found["number"], found["version"], found["state"]) == (str(other.id), 10, 10, "failed")
    assert (found["attempts"], found["response_status"], found["event_type"]) == (2, 204, "node.online")
    assert {"event_id", "allocation_id", "tenant_id", "created_at", "attempted_at", "ended_at", "error"} <= set(found)
    assert find_delivery(archive, Place(other.id, 12).key) is None
    text = "\n".join(lines_of(tmp_path / "archive"))
    assert [secret for secret in (SECRET, EXCERPT, HOST) if secret in text] == []
    (audited,) = rows_of(database_url, "select subject, detail from audit where action = 'webhook_deliveries.archive'")
    assert (audited[0], audited[1]["deleted"]) == ("archive/1", 6)
    assert run(database_url, archive).segments == 0, "a second run finds nothing"
    assert "archive" not in violations(database_url)


def test_a_line_names_the_allocation_of_its_event(database_url: str, tmp_path: Path) -> None:
    webhook = new_webhook(database_url)
    with connect(database_url) as connection:
        connection.execute(
            "insert into log (version, prev_version, outbox_id, leader_id, event_id, event_type, subject, correlation_id,"
            " occurred_at, payload) values (1, 0, 1, 'l', uuidv7(), 'provisioning.active', 'allocations/x', uuidv7(),"
            ' clock_timestamp(), \'{"allocation_id": "the-allocation"}\')'
        )
    webhook.deliver(1, 2, days=40)
    archive = Directory(tmp_path / "archive")
    run(database_url, archive)
    named = [json.loads(line)["allocation_id"] for line in lines_of(tmp_path / "archive")]
    assert named == ["the-allocation", None]


def test_sweepers_leave_deliveries_to_the_archive_while_it_is_used(database_url: str, tmp_path: Path) -> None:
    webhook = new_webhook(database_url)
    archive = Directory(tmp_path / "archive")
    webhook.deliver(1, 2, days=40)
    assert (sweep(database_url), webhook.numbers()) == (2, []), "without an archive they are swept by their age"
    webhook.deliver(3, 4, days=20)
    run(database_url, archive)
    assert (sweep(database_url), webhook.numbers()) == (0, [3, 4]), "not archived, so not deleted"
    assert (sweep(database_url, kept=1), webhook.numbers()) == (0, [3, 4]), "however many there are"
    run(database_url, archive, Retention(400))
    assert sweep(database_url) == 0, "a run without deliveries changes nothing"
    assert run(database_url, archive, Retention(400, 0, 10)).deliveries == 2
    webhook.deliver(5, 6, days=20)
    assert run(database_url, archive, Retention(400, 0, 0)).deliveries == 0
    assert (sweep(database_url), webhook.numbers()) == (2, []), "an operator has ended it"


def test_deliveries_of_a_deleted_webhook_leave_at_once_and_the_webhook_with_them(
    database_url: str, tmp_path: Path
) -> None:
    webhook = new_webhook(database_url)
    webhook.deliver(1, 2, days=0)
    with connect(database_url) as connection:
        connection.execute("update webhooks set state = 'deleted' where id = %s", (webhook.id,))
    assert run(database_url, Directory(tmp_path / "archive")).deliveries == 2
    assert sweep(database_url) == 0
    assert rows_of(database_url, "select from webhooks where id = %s", webhook.id) == []


def test_segments_of_deliveries_are_bounded(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    webhook = new_webhook(database_url)
    webhook.deliver(1, 7, days=40)
    monkeypatch.setattr(running, "DELIVERIES_MAX", 3)
    archive = Directory(tmp_path / "archive")
    done = run(database_url, archive)
    assert (done.segments, done.deliveries) == (3, 7)
    monkeypatch.setattr(running, "SEGMENT_BYTES_MAX", 10)
    webhook.deliver(8, 11, days=40)
    assert run(database_url, archive).segments == 4
    assert (judge(archive).deliveries, judge(archive).violations, webhook.numbers()) == (11, [], [])


def test_a_delivery_that_is_sent_again_or_locked_stays(database_url: str, tmp_path: Path) -> None:
    webhook = new_webhook(database_url)
    webhook.deliver(1, 4, days=40)
    with connect(database_url) as rival:

        def interfere() -> None:
            again = "update webhook_deliveries set state = 'pending', next_attempt_at = now(), ended_at = null where number = 2"
            rival.execute(again)
            rival.execute("update webhook_deliveries set attempts = 3, ended_at = now() where number = 4")
            rival.execute("begin")
            rival.execute("select from webhook_deliveries where number = 3 for update")

        done = run(database_url, Interfering(tmp_path / "archive", interfere))
        rival.execute("rollback")
    assert (done.segments, done.deliveries, done.deliveries_skipped) == (1, 1, 3)
    assert webhook.numbers() == [2, 3, 4]
    with connect(database_url) as connection:
        connection.execute("update webhook_deliveries set ended_at = ended_at - interval '40 days' where number = 4")
    assert run(database_url, Directory(tmp_path / "archive")).deliveries == 2
    judged = judge(Directory(tmp_path / "archive"))
    assert (judged.deliveries, judged.deliveries_repeated, judged.violations) == (4, 2, [])
    assert webhook.numbers() == [2]


@pytest.mark.quick("archive.after_segment", "archive.before_delete_commit")
@pytest.mark.parametrize("point", list(CrashPoint))
def test_no_delivery_is_lost_when_the_command_is_killed(database_url: str, tmp_path: Path, point: CrashPoint) -> None:
    webhook = new_webhook(database_url)
    webhook.deliver(1, 3, days=40)
    archive = Directory(tmp_path / "archive")
    killed_run(database_url, str(tmp_path / "archive"), point, BERTH_DELIVERY_RETENTION_DAYS="30")
    assert sweep(database_url) == 0
    sealed = [number for number in (1, 2, 3) if find_delivery(archive, Place(webhook.id, number).key) is not None]
    assert set(webhook.numbers()) | set(sealed) == {1, 2, 3}
    assert (sealed == []) == (point in BEFORE_SEALED)
    done = run(database_url, archive)
    assert done.resumed == (point in {CrashPoint.AFTER_MANIFEST, CrashPoint.BEFORE_DELETE_COMMIT})
    assert webhook.numbers() == []
    judged = judge(archive)
    assert (judged.deliveries, judged.deliveries_repeated, judged.violations) == (3, 0, [])


def test_sealed_deliveries_of_another_database_are_not_deleted(
    database_url: str, postgres_server: LocalPostgres, migrated_template: str, tmp_path: Path
) -> None:
    new_webhook(database_url).deliver(1, 2, days=40)
    killed_run(database_url, str(tmp_path / "archive"), CrashPoint.AFTER_MANIFEST, BERTH_DELIVERY_RETENTION_DAYS="30")
    with copied_database(postgres_server, migrated_template) as other:
        kept = new_webhook(other)
        kept.deliver(1, 2, days=40)
        with pytest.raises(ArchiveProblem, match="does not continue"):
            run(other, Directory(tmp_path / "archive"))
        assert kept.numbers() == [1, 2]


def test_what_is_beyond_the_newest_leaves_before_its_retention(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery_rows, "KEPT_MAX", 40)
    webhook = new_webhook(database_url)  # it has numbered 100
    webhook.deliver(58, 63, days=1)
    assert run(database_url, Directory(tmp_path / "archive")).deliveries == 3
    assert webhook.numbers() == [61, 62, 63]


def test_a_run_that_cannot_write_does_not_count_for_doctor(database_url: str, tmp_path: Path) -> None:
    class Full(Directory):
        def write(self, name: str, content: bytes) -> None:
            raise ArchiveProblem("archive_unwritable", f"{name} of {len(content)} bytes does not fit")

    new_webhook(database_url).deliver(1, 2, days=40)
    run(database_url, Directory(tmp_path / "archive"), Retention(400, 0, 50))
    with connect(database_url) as connection:
        connection.execute("update archive_uses set last_run = last_run - interval '9 days'")
    assert archive_finding(database_url).verdict == "warning"
    with pytest.raises(ArchiveProblem, match="does not fit"):
        run(database_url, Full(tmp_path / "archive"))
    assert archive_finding(database_url).verdict == "warning"
    run(database_url, Directory(tmp_path / "archive"))
    assert archive_finding(database_url).verdict == "ok"


def test_doctor_warns_when_no_run_comes_any_more(database_url: str, tmp_path: Path) -> None:
    assert archive_finding(database_url).verdict == "skipped"
    run(database_url, Directory(tmp_path / "archive"))
    assert archive_finding(as_role(database_url, Role.OPERATOR)).verdict == "ok"
    with connect(database_url) as connection:
        connection.execute("update archive_uses set last_run = clock_timestamp() - interval '4 days'")
    assert archive_finding(database_url).verdict == "warning"
