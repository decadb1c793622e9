"""What is to be said of PostgreSQL's standbys. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from berth.cli.deployment.findings import Finding

CONFIRMING = ("quorum", "sync")
NAMED_MAX = 10


@dataclass(frozen=True)
class Standby:
    """A standby as the primary sees it; a field is None if the role may not see it."""

    name: str | None
    state: str | None
    sync_state: str | None
    behind_bytes: Decimal | int | None

    def __str__(self) -> str:
        """For a person."""
        behind = "?" if self.behind_bytes is None else f"{int(self.behind_bytes):,}"
        return f"{self.name or 'unnamed'} {self.sync_state or 'hidden'}, {behind} bytes behind"


def judge_standbys(primary: str, synchronous_names: str, standbys: Sequence[Standby]) -> Finding:
    """`synchronous_names`: the setting `synchronous_standby_names`; empty: commits wait for no standby."""
    listed = "; ".join(map(str, standbys[:NAMED_MAX]))
    if not synchronous_names and not standbys:
        return Finding("standbys", "skipped", f"{primary}; one server, and no commit waits for another")
    if not synchronous_names:
        return Finding(
            "standbys", "warning", f"{primary}; commits wait for no standby, so a failover may lose some: {listed}"
        )
    if any(standby.sync_state is None for standby in standbys):
        return Finding(
            "standbys", "skipped", f"{primary}; {len(standbys)} connected; their state needs the role pg_monitor"
        )
    confirming = sum(standby.sync_state in CONFIRMING for standby in standbys)
    if confirming == 0:
        return Finding(
            "standbys", "bad", f"{primary}; commits wait: no standby confirms them; {listed or 'none is connected'}"
        )
    found = f"{primary}; {confirming} confirm commits: {listed}"
    if confirming == 1:
        return Finding("standbys", "warning", f"{found}; the loss of one more server stops writes")
    return Finding("standbys", "ok", found)
