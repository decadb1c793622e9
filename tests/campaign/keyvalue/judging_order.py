"""Commits and reads are ordered as they followed each other: a later one never has an older version (strict serialisability)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from berth.client.keyvalue_models import Commit
from tests.campaign.history import History, Outcome
from tests.campaign.judging.judging_clients import Violation


@dataclass(frozen=True)
class Step:
    """A commit or a read. `began`: not executed before; `known`: executed by then."""

    name: str
    began: float
    known: float
    version: int
    is_commit: bool


def check_order_of_commits(history: History) -> Iterator[Violation]:
    """Whatever began after a response has a version that is no older; that of a commit is newer."""
    steps = sorted(_steps(history), key=lambda step: step.began)
    by_known = sorted(steps, key=lambda step: step.known)
    newest: Step | None = None
    place = 0
    for step in steps:
        while place < len(by_known) and by_known[place].known < step.began:
            if newest is None or by_known[place].version > newest.version:
                newest = by_known[place]
            place += 1
        if newest is None:
            continue
        if step.version < newest.version or (step.is_commit and step.version == newest.version):
            yield Violation(
                "only forward",
                f"{step.name} has version {step.version}, and began after {newest.name} had {newest.version}",
            )


def _steps(history: History) -> Iterator[Step]:
    for read in history.key_reads:
        yield Step(f"read of {read.place}", read.asked, read.answered, read.read_version, False)
    for key, attempts in history.by_key().items():
        known = [
            attempt
            for attempt in attempts
            if attempt.kind == "commit" and (attempt.outcome is Outcome.DONE or attempt.code == "not_committed")
        ]
        if known:
            first = min(known, key=lambda attempt: attempt.ended)
            version = Commit.model_validate_json(first.answer).version
            if version is not None:
                yield Step(f"commit {key}", attempts[0].began, first.ended, version, True)
