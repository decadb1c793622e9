"""Each operand of each `or` in the statements of `berth verify` is needed: without it a planted violation is not found, or a
database without violations is reported.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
from psycopg.sql import Composable

from berth.local.servers import LocalPostgres
from orchestrator.verification import CHECKS, Bounds
from orchestrator.verification.billing import check_billing
from orchestrator.verification.fleet.leased_networks import check_leased_networks
from orchestrator.verification.maintenance import check_maintenance
from orchestrator.verification.p1_one_holder import check_one_holder
from orchestrator.verification.p2_reservations import check_reserved_together
from orchestrator.verification.p2_together import check_together
from orchestrator.verification.p3_one_order import check_one_order
from orchestrator.verification.p5_late_never_early import check_late_never_early
from orchestrator.verification.p6_owned_claims import check_owned_claims
from orchestrator.verification.p6_proven_cleanup import check_proven_cleanup
from orchestrator.verification.p6_removed_login_data import check_removed_login_data
from orchestrator.verification.p8_final_states import check_final_states
from orchestrator.verification.p8_reservation_paths import check_reservation_paths
from orchestrator.verification.p9_complete_waits import check_complete_waits
from orchestrator.verification.verdict import Verdict
from orchestrator.verification.wipe_certificates import check_wipe_certificates
from tests.berth.busy import make_busy
from tests.berth.violations import VIOLATIONS_OF_ROWS, Violation, sql_of
from tests.berth.violations_of_billing import BILLED
from tests.berth.violations_of_branches import BRANCHES, KEPT, Kept
from tests.berth.violations_of_facts import FACTS
from tests.berth.violations_of_reservations import RESERVED
from tests.berth.violations_of_stories import VIOLATIONS_OF_STORIES
from tests.databases import copied_database
from tests.networks.violations import NETWORKS
from tests.wiping.violations import WIPES

VIOLATIONS = [*BRANCHES, *VIOLATIONS_OF_ROWS, *VIOLATIONS_OF_STORIES, *FACTS, *RESERVED, *WIPES, *NETWORKS, *BILLED]
EQUIVALENT = (
    # Without a resource its unit's range is unbounded, which no claim's units are.
    "(r.id is null [and false or] c.units <> int8multirange",
)
"""Operands that no plant can show, each with the reason."""
CHECK_OF = {
    "P1": check_one_holder, "P2": check_together, "P2 reservations": check_reserved_together, "P3": check_one_order,
    "P5": check_late_never_early, "P6": check_proven_cleanup,
    "login data": check_removed_login_data, "claims": check_owned_claims, "maintenance": check_maintenance,
    "P8": check_final_states, "wipe certificates": check_wipe_certificates, "networks": check_leased_networks,
    "P8 reservations": check_reservation_paths, "P9": check_complete_waits, "billing": check_billing,
}  # fmt: skip
OR = re.compile(r"\bor\b")
COMMENT = re.compile(r"--[^\n]*")


@dataclass(frozen=True)
class Branch:
    """A statement of a check in which one operand of an `or` is always false."""

    promise: str
    statement: str
    without: str
    values: tuple[tuple[str, Any], ...]
    place: str

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.promise}: {self.place}"


def branches_of(promise: str, statement: str, values: dict[str, Any]) -> Iterator[Branch]:
    """Both operands of every `or`. `and` binds tighter: `and false` takes the conjunction before an `or`, `false and` the
    one behind it.
    """
    plain = COMMENT.sub("", statement)
    for found in OR.finditer(plain):
        for instead in ("and false or", "or false and"):
            without = plain[: found.start()] + instead + plain[found.end() :]
            before, behind = plain[max(0, found.start() - 60) : found.start()], plain[found.end() : found.end() + 60]
            place = " ".join(f"{before}[{instead}]{behind}".split())
            yield Branch(promise, plain, without, tuple(values.items()), place)


@pytest.fixture(scope="module")
def busy(postgres_server: LocalPostgres, migrated_template: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection to a busy database; what is planted is taken back."""
    with copied_database(postgres_server, migrated_template) as url:
        make_busy(url)
        with psycopg.connect(url) as connection:
            yield connection
            connection.rollback()


def all_branches(connection: psycopg.Connection[Any]) -> list[Branch]:
    """Of every statement that the checks scan."""
    found: list[Branch] = []
    original = Verdict.scan

    def note(verdict: Verdict, on: Any, statement: Any, sentence: str, **values: Any) -> None:
        written = statement.as_string() if isinstance(statement, Composable) else statement
        found.extend(branches_of(verdict.promise, written, values))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Verdict, "scan", note)
        for check in CHECKS:
            check(connection, Bounds())
    assert Verdict.scan is original
    return found


def reported(connection: psycopg.Connection[Any], statement: str, branch: Branch) -> list[str]:
    """The violations that the statement finds."""
    return sorted(map(repr, connection.execute(statement.encode(), dict(branch.values)).fetchall()))


@pytest.mark.parametrize("violation", BRANCHES, ids=lambda violation: violation.name.replace(" ", "_"))
def test_a_violation_that_one_operand_finds_is_found(violation: Violation, busy: psycopg.Connection[Any]) -> None:
    busy.rollback()
    busy.execute(sql_of(violation.plant))
    (promise,) = violation.broken
    sentences = CHECK_OF[promise](busy, Bounds()).violations
    assert any(violation.words in sentence for sentence in sentences), sentences


@pytest.mark.parametrize("kept", KEPT, ids=lambda kept: kept.name.replace(" ", "_"))
def test_what_one_operand_permits_is_not_reported(kept: Kept, busy: psycopg.Connection[Any]) -> None:
    busy.rollback()
    busy.execute(sql_of(kept.plant))
    assert CHECK_OF["P2"](busy, Bounds()).violations == []


@pytest.mark.full
def test_without_a_branch_a_planted_violation_is_missed(busy: psycopg.Connection[Any]) -> None:
    left = [branch for branch in all_branches(busy) if not any(known in branch.place for known in EQUIVALENT)]
    assert len(left) > 100
    plants: list[tuple[bytes, frozenset[str] | None]] = [(b"", None)]
    plants += [(sql_of(kept.plant), None) for kept in KEPT]
    plants += [(sql_of(violation.plant), violation.broken) for violation in VIOLATIONS]
    for plant, broken in plants:
        busy.rollback()
        if plant:
            busy.execute(plant)
        left = [
            branch
            for branch in left
            if (broken is not None and branch.promise not in broken)
            or reported(busy, branch.statement, branch) == reported(busy, branch.without, branch)
        ]
    assert not left, "\n".join(branch.name for branch in left)
