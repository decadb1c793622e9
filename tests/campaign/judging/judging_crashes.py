"""What must hold of the servers themselves: PostgreSQL ends no session by a fault of its own."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.campaign.judging.judging_clients import Violation

CRASHED = re.compile(r"was terminated by signal (?:4|6|7|8|11): [^\n]*")
"""SIGILL, SIGABRT, SIGBUS, SIGFPE and SIGSEGV; SIGKILL is a fault of the campaign."""


def judge_crashes(logs: Iterable[Path]) -> Iterator[Violation]:
    """Each crash in these logs of servers: whatever statement caused it ends the sessions of every client."""
    for log in logs:
        for crash in CRASHED.findall(log.read_text(errors="replace") if log.exists() else ""):
            yield Violation("no crash", f"{log.stem}: a session {crash}")
