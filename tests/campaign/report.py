"""What a campaign found, as lines for a person and as JSON."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.campaign.faults.catalogue import sort_of
from tests.campaign.faults.recovering import Recovery, by_class, recoveries
from tests.campaign.history import SETTLED, Delivery, History, Outcome
from tests.campaign.judging.judging_clients import Violation, ambiguous

VIOLATIONS_SHOWN = 20


@dataclass
class Report:
    """The result."""

    seed: int
    seconds: float
    plant: str | None
    operations: dict[str, dict[str, int]]
    reads: dict[str, int]
    allocations: dict[str, int]
    faults: dict[str, int]
    faults_undone: list[str]
    duplicates: int
    ambiguous: int
    ambiguous_resolved: int
    events: int
    events_by_type: dict[str, int]
    deliveries: int
    recoveries: list[Recovery]
    key_reads: int = 0
    sessions: int = 0
    """Connections of subscribers over HTTP."""
    received: int = 0
    """Events on them."""
    accounts: dict[str, int] = field(default_factory=dict)
    violations: list[Violation] = field(default_factory=list)
    timings: dict[str, float] = field(default_factory=dict)

    @property
    def kept(self) -> bool:
        """Whether nothing that was promised was broken."""
        return not self.violations

    @property
    def late(self) -> list[Recovery]:
        """Recoveries that took longer than their budget."""
        return [recovery for recovery in self.recoveries if recovery.late]

    def lines(self) -> list[str]:
        """The report for a person."""
        measured = sorted(recovery.seconds for recovery in self.recoveries if recovery.seconds is not None)
        shown = [
            f"campaign: seed {self.seed}, {self.seconds:.0f} s" + (f", planted: {self.plant}" if self.plant else "")
        ]
        for kind, outcomes in sorted(self.operations.items()):
            shown.append(f"  {kind:<14} {sum(outcomes.values()):>6}   {_counts(outcomes)}")
        shown.append(f"  {'reads':<14} {sum(self.reads.values()):>6}   {_counts(self.reads)}")
        shown.append(f"  {'allocations':<14} {sum(self.allocations.values()):>6}   {_counts(self.allocations)}")
        shown.append(f"  {'events':<14} {self.events:>6}   deliveries={self.deliveries}")
        shown.append(f"  {'':<14} {'':>6}   {_counts(self.events_by_type)}")
        shown.append(f"  {'subscribers':<14} {self.sessions:>6}   received={self.received}")
        shown.append(f"  {'accounts':<14} {'':>6}   {_counts(self.accounts)}")
        shown.append(f"  {'faults':<14} {sum(self.faults.values()):>6}   {_counts(self.faults)}")
        shown += [f"  not done: {sentence}" for sentence in self.faults_undone]
        shown.append(
            f"  writes repeated {self.duplicates}; ambiguous {self.ambiguous}, resolved {self.ambiguous_resolved}"
        )
        if measured:
            shown.append(
                f"  recovery after a fault: p50 {statistics.median(measured):.1f} s, max {measured[-1]:.1f} s "
                f"({len(measured)} of {len(self.recoveries)} measured, {len(self.late)} late)"
            )
            shown += [f"    {line}" for line in by_class(self.recoveries)]
        shown.append(f"  {'timings':<14}          " + " ".join(f"{n}={s:.0f}s" for n, s in self.timings.items()))
        by_check = Counter(violation.check for violation in self.violations)
        shown.append(
            f"  violations: {len(self.violations)}" + "".join(f"; {check} {n}" for check, n in by_check.items())
        )
        shown += [f"    {violation}" for violation in self.violations[:VIOLATIONS_SHOWN]]
        return shown

    def write(self, path: Path) -> None:
        """The same as JSON."""
        document: dict[str, Any] = {
            **vars(self),
            "violations": [vars(violation) for violation in self.violations],
            "recoveries": [{**asdict(recovery), "late": recovery.late} for recovery in self.recoveries],
        }
        path.write_text(json.dumps(document, indent=2, default=str) + "\n")


def make_report(history: History, seconds: float, plant: str | None) -> Report:
    """Count the entries of the history; the caller adds violations and timings."""
    operations: dict[str, Counter[str]] = {}
    keys = history.by_key()
    for attempt in history.attempts:
        word = attempt.outcome.value if attempt.outcome is Outcome.DONE else f"{attempt.outcome.value}:{attempt.code}"
        operations.setdefault(attempt.kind, Counter())[word] += 1
    reads = Counter(history.reads)
    reads.update("get ok" if sight.state else "get not_found" for sight in history.sights)
    unsure = [attempts for attempts in keys.values() if ambiguous(attempts)]
    resolved = [attempts for attempts in unsure if any(a.outcome in SETTLED for a in attempts)]
    return Report(
        seed=history.seed,
        seconds=seconds,
        plant=plant,
        operations={kind: dict(outcomes) for kind, outcomes in operations.items()},
        reads=dict(reads),
        allocations=dict(Counter(sight.state or "?" for sight in history.settled.values())),
        faults=dict(Counter(f"{i.kind} {sort_of(i.kind, i.target)}" for i in history.injuries if not i.error)),
        faults_undone=[f"{i.kind} {i.target}: {i.error}" for i in history.injuries if i.error],
        duplicates=sum(len(attempts) > 1 for attempts in keys.values()),
        ambiguous=len(unsure),
        ambiguous_resolved=len(resolved),
        events=len(history.events()),
        events_by_type=dict(Counter(_named(event) for event in history.events().values())),
        deliveries=len(history.deliveries),
        key_reads=len(history.key_reads),
        sessions=len(history.sessions),
        received=sum(len(session.events) for session in history.sessions),
        accounts=_accounts(history),
        recoveries=recoveries(history),
    )


def _accounts(history: History) -> dict[str, int]:
    """What was seen of webhooks, money and limits."""
    seen, events = history.accounts, history.events().values()
    return {
        "webhooks": len(seen.hooks),
        "messages": len(seen.messages),
        "messages_repeated": len(seen.messages) - len({(one.hook, one.message_id) for one in seen.messages}),
        "webhooks_gone": sum(event.type == "webhook.disabled" for event in events),
        "ledger_lines": 0 if seen.books is None else len(seen.books.lines),
        "released_by_billing": sum(event.data.get("reason") == "balance_depleted" for event in events),
        "limited": len(seen.limited) + sum(attempt.code == "rate_limited" for attempt in history.attempts),
    }


def _named(event: Delivery) -> str:
    """Its type, and what of it is worth counting apart."""
    code = event.data.get("code") if event.type in ("provisioning.failed", "reservation.failed") else None
    by_itself = event.data.get("turned_over") and event.operation_key is None
    return event.type + (f" ({code})" if code else " (by itself)" if by_itself else "")


def _counts(counts: dict[str, int]) -> str:
    return " ".join(f"{name}={count}" for name, count in sorted(counts.items()))
