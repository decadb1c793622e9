"""Mutants of `berth backup`."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

HERE = "berth/cli/deployment/backup"
BASE = "tests/backup/test_base_backups.py"
STREAM = "tests/backup/test_streaming.py"
VERIFY = "tests/backup/test_verifying.py"
RETENTION = "tests/backup/test_retention.py"
ESCROW = "tests/backup/test_escrow.py"
DOCTOR = "tests/backup/test_doctor.py"

MUTANTS: list[Mutant] = [
    Mutant(
        "a backup has its name before it is complete",
        "backup",
        f"{HERE}/base_backup.py",
        '    unfinished = directory.base / f"{UNFINISHED}{name}"\n',
        "    unfinished = directory.base / name\n",
        (f"{BASE}::test_a_killed_run_leaves_no_half_backup[backup.after_copy]",),
    ),
    Mutant(
        "a backup of another server is taken into the directory",
        "backup",
        f"{HERE}/directory.py",
        "        if known != system_identifier:\n",
        "        if False:\n",
        (f"{BASE}::test_the_directory_of_another_server_is_refused",),
    ),
    Mutant(
        "a program outlives the command that is killed",
        "backup",
        f"{HERE}/programs.py",
        "    ctypes.CDLL(None).prctl(1, 9)\n",
        "    pass\n",
        (f"{STREAM}::test_the_receiver_ends_with_a_killed_stream_which_goes_on_where_it_was",),
    ),
    Mutant(
        "the password is on the command line",
        "backup",
        f"{HERE}/programs.py",
        'parameters.pop("password", None)',
        'parameters.get("password")',
        (f"{STREAM}::test_the_password_is_on_no_command_line",),
    ),
    Mutant(
        "an unfinished backup stays on a full disk",
        "backup",
        f"{HERE}/base_backup.py",
        "    except (BackupProblem, OSError):\n        directory.clear_unfinished()\n        raise\n",
        "    except (BackupProblem, OSError):\n        raise\n",
        (f"{BASE}::test_a_full_disk_is_named_and_leaves_the_backups_that_are_there",),
    ),
    Mutant(
        "the newest proven backup is deleted",
        "backup",
        f"{HERE}/retention.py",
        "one.backup.ended < oldest and one.backup.name != proven",
        "one.backup.ended < oldest",
        (f"{RETENTION}::test_what_must_stay_stays",),
    ),
    Mutant(
        "the first segment of a kept backup is deleted",
        "backup",
        f"{HERE}/retention.py",
        "if segment.number < first}",
        "if segment.number <= first}",
        (f"{RETENTION}::test_no_kept_backup_loses_wal",),
    ),
    Mutant(
        "a backup that is deleted keeps its name until it is gone",
        "backup",
        f"{HERE}/retention.py",
        '        discarded = directory.base / f"{DISCARDED}{backup.name}"\n',
        "        discarded = directory.base / backup.name\n",
        (f"{BASE}::test_a_killed_deletion_leaves_no_half_backup",),
    ),
    Mutant(
        "the unfinished segment is not restored",
        "backup",
        f"{HERE}/wal.py",
        '        name = path.name.removesuffix(".partial")\n',
        "        name = path.name\n",
        (f"{VERIFY}::test_the_unfinished_segment_is_used_once_and_the_finished_one_instead",),
    ),
    Mutant(
        "the unfinished segment wins over the complete one",
        "backup",
        f"{HERE}/wal.py",
        '            if known is None or known.name.endswith(".partial"):\n',
        "            if known is None:\n",
        (f"{VERIFY}::test_the_unfinished_segment_is_used_once_and_the_finished_one_instead",),
    ),
    Mutant(
        "a moment before the end of a named backup is accepted",
        "backup",
        f"{HERE}/catalogue.py",
        "        if at is None or backup.ended <= at:\n",
        "        if at is None or backup.ended <= at or name is not None:\n",
        (f"{VERIFY}::test_moments_outside_of_what_is_there",),
    ),
    Mutant(
        "the restore ignores the moment",
        "backup",
        f"{HERE}/scratch.py",
        "        if at is not None:\n",
        "        if False:\n",
        ("tests/backup/test_story.py::test_a_restore_has_exactly_the_rows_of_the_moment",),
    ),
    Mutant(
        "the content of a file is not compared with the manifest",
        "backup",
        f"{HERE}/manifest.py",
        'hashlib.file_digest(content, "sha256").hexdigest() != file["Checksum"]',
        "False",
        (f"{VERIFY}::test_a_changed_byte_is_found",),
    ),
    Mutant(
        "the scratch server keeps what the original altered",
        "backup",
        f"{HERE}/scratch.py",
        '        (self.data / "postgresql.auto.conf").write_text("")\n',
        "",
        (f"{VERIFY}::test_the_scratch_server_is_closed_to_everything",),
    ),
    Mutant(
        "a gap in the WAL is no finding of a verification",
        "backup",
        f"{HERE}/verifying.py",
        "    elif result.wal_gap and result.code is None:\n",
        "    elif False:\n",
        (f"{VERIFY}::test_missing_wal_is_found",),
    ),
    Mutant(
        "the stream goes on in the run with the gap",
        "backup",
        f"{HERE}/streaming.py",
        "            if _LOST.search(said):\n",
        "            if False:\n",
        (f"{STREAM}::test_a_server_that_restarts_and_one_that_lost_wal",),
    ),
    Mutant(
        "a silent server has no lag",
        "backup",
        f"{HERE}/stream_status.py",
        "(since if answers else min(since, self._last_answer))",
        "since",
        (f"{STREAM}::test_the_lag_is_the_age_of_the_oldest_unconfirmed_wal",),
    ),
    Mutant(
        "a mistyped recovery key is used",
        "backup",
        f"{HERE}/escrow.py",
        "if hashlib.sha256(key).digest()[:CHECK_BYTES] == check and",
        "if",
        (f"{ESCROW}::test_a_mistyped_public_key_is_refused",),
    ),
    Mutant(
        "a file of an escrow is written outside of its folder",
        "backup",
        f"{HERE}/escrow.py",
        "            if Path(name).name != name:\n",
        "            if False:\n",
        (f"{ESCROW}::test_files_are_made_once_and_for_their_owner_alone",),
    ),
    Mutant(
        "a backup is never too old",
        "backup",
        f"{HERE}/findings.py",
        '"bad" if seconds > BACKUP_SECONDS_MAX else "ok"',
        '"ok"',
        (f"{DOCTOR}::test_the_age_of_the_backup",),
    ),
    Mutant(
        "an escrow without the newest key is enough",
        "backup",
        f"{HERE}/findings.py",
        "    if lacking:\n",
        "    if False:\n",
        (f"{DOCTOR}::test_the_escrow_lacks_a_key_that_is_newer",),
    ),
]
