"""Mutants of `berth archive`."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

ROWS, RUNNING = "berth/cli/deployment/archive/rows.py", "berth/cli/deployment/archive/running.py"
TESTS = ("tests/archive/test_running.py",)

MUTANTS: list[Mutant] = [
    Mutant(
        "rows are deleted that changed since they were sealed",
        "archive",
        ROWS,
        "for found, text in now if Line(str(found), text).sha256 == sealed.digests[found]]",
        "for found, text in now if text]",
        TESTS,
    ),
    Mutant("two runs archive at once", "archive", RUNNING, "if not lock_archive(connection):", "if False:", TESTS),
    Mutant(
        "what was sealed before a crash is sealed again",
        "archive",
        RUNNING,
        "done, head = _resume(connection, destination)",
        "done, head = Archived(), read_head(connection)",
        ("tests/archive/test_crashes.py",),
    ),
    Mutant(
        "a segment counts with another checksum",
        "archive",
        "berth/cli/deployment/archive/chains.py",
        "if digest_of(content) != segment.sha256:",
        "if False:",
        ("tests/archive/test_judging.py",),
    ),
    Mutant(
        "an allocation is archived before its time",
        "archive",
        ROWS,
        "< clock_timestamp() - make_interval(days => %(days)s)",
        "< clock_timestamp()",
        TESTS,
    ),
    Mutant(
        "an allocation that is not metered is archived",
        "archive",
        ROWS,
        "and (a.active_at is null\n       or exists",
        "and (true\n       or exists",
        TESTS,
    ),
]
