"""What must hold of reads that left no sight in the history."""

from __future__ import annotations

from collections.abc import Iterator

from tests.campaign.history import History
from tests.campaign.judging.judging_clients import Violation

UNFORESEEN = ("internal", "http_500", "unreadable_answer")


def judge_reads(history: History) -> list[Violation]:
    """Every check on the counts of reads."""
    return list(check_reads(history))


def check_reads(history: History) -> Iterator[Violation]:
    """No read was answered by an internal error."""
    for what, count in sorted(history.reads.items()):
        if what.rpartition(" ")[2] in UNFORESEEN:
            yield Violation("foreseen", f"{count} reads ended as {what!r}")
