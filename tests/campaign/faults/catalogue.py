"""Every fault of the campaign: what happens, which promise it tests, and how soon all must be well again.

A fault is a kind and a sort of target. `python -m tests.campaign.faults.catalogue` prints the table of the documentation.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tests.campaign.schedule import BMC_KINDS, LINK_KINDS, ROLL_PREFIX, FaultKind

PROCESS, AGENT, DRIVER, SITE_AGENT = "process", "agent", "driver", "site agent"
BMC, BMCS, MACHINE = "BMC", "every BMC", "machine"
POSTGRES, NATS, TEMPORAL, CLUSTER = "PostgreSQL", "NATS", "Temporal", "PostgreSQL cluster"
NATS_MEMBER = "one of three NATS"
TO_POSTGRES, TO_NATS, TO_TEMPORAL, TO_NODE_API = (
    "link to PostgreSQL", "link to NATS", "link to Temporal", "link to the node API",
)  # fmt: skip
TO_API = "link to the API"
"""Of subscribers, whose return says nothing about allocations: without a budget."""
LINKS = (TO_POSTGRES, TO_NATS, TO_TEMPORAL, TO_NODE_API)
EVERY_PROCESS, EVERY_AGENT = "every process of a sort", "every agent"
SERVERS = {"postgres": POSTGRES, "nats": NATS, "temporal": TEMPORAL}
LINKS_BY_SERVER = {"postgres": TO_POSTGRES, "nats": TO_NATS, "temporal": TO_TEMPORAL, "node-api": TO_NODE_API}


@dataclass(frozen=True)
class Entry:
    """A kind with the sorts that it may hit. `seconds_max`: the budget of the recovery, by the sort."""

    kind: FaultKind
    seconds_max: Mapping[str, float]
    what: str
    promise: str


def _each(seconds: float, *sorts: str) -> dict[str, float]:
    return dict.fromkeys(sorts, seconds)


PARTS = {**_each(20, PROCESS, AGENT, SITE_AGENT), **_each(30, POSTGRES, NATS, TEMPORAL)}
MACHINE_ENTRIES = (
    Entry(
        FaultKind.BMC_SILENT, _each(20, BMC), "it takes commands and answers nothing",
        "a command without an answer is unknown, never failed, and is not sent again",
    ),
    Entry(FaultKind.BMC_BUSY, _each(20, BMC), "503 to everything", "a step ends by its deadline"),
    Entry(
        FaultKind.BMC_ERROR, _each(20, BMC), "500 to everything, to commands after their effect",
        "the state counts, not the answer",
    ),
    Entry(
        FaultKind.BMC_REFUSES_PASSWORD, _each(20, BMC),
        "401 to all but the service root, and a new password counts a second after its change",
        "the newest two passwords of the store open the BMC",
    ),
    Entry(FaultKind.BMC_LIES, _each(20, BMC), "success without an effect", "nothing is believed that was not read back"),
    Entry(
        FaultKind.BMC_DELAYS, _each(20, BMC), "success at once, the effect of commands a second later",
        "a power state counts once no command can be queued",
    ),
    Entry(
        FaultKind.BMC_QUEUES, _each(20, BMC), "no answer, the effect of commands a second later: a queued On arrives after Off",
        "a power state counts once no command can be queued",
    ),
    Entry(
        FaultKind.BOOT_FORGOTTEN, _each(20, BMC), "success, and the boot override stays as it was", "boot once is read back",
    ),
    Entry(
        FaultKind.MEDIUM_EJECTED, _each(20, BMC), "a medium is out as soon as it is in", "only the hello proves the boot",
    ),
    Entry(
        FaultKind.POWER_FLAPS, _each(20, BMC), "every other read of the power state says the opposite",
        "a power state counts once it has not changed for as long as a command may be queued",
    ),
    Entry(
        FaultKind.CERTIFICATE_CHANGED, _each(20, BMC), "it has another TLS certificate; then the first again",
        "nothing is sent to it before an operator decides",
    ),
    Entry(
        FaultKind.BMCS_KILLED, _each(20, BMCS), "SIGKILL of the process of all BMCs, started after 0 to 2 s; machines run on",
        "a run ends in done, undone or quarantine",
    ),
    Entry(
        FaultKind.BMCS_FROZEN, _each(20, BMCS), "SIGSTOP of that process for 0.3 to 1.2 s, less than a BMC may hold a command",
        "a power state counts once no command can be queued",
    ),
    Entry(
        FaultKind.DEPLOY_KILLED, _each(20, MACHINE), "its next deploy system dies in a step, and the machine hangs",
        "a run ends by its deadline, and the disk is wiped by the next one",
    ),
)  # fmt: skip
CATALOGUE: tuple[Entry, ...] = (
    Entry(
        FaultKind.KILL, {**PARTS, NATS_MEMBER: 30},
        "SIGKILL of a process or a server; started again after 0 to 2 s", "P14: no committed data is lost",
    ),
    Entry(
        FaultKind.PAUSE, {**PARTS, NATS_MEMBER: 30},
        "SIGSTOP of a process or a server with its children, SIGCONT after 0.5 to 8 s",
        "P7: what a paused process does later is fenced; P14",
    ),
    Entry(
        FaultKind.STARVE, {**PARTS, NATS_MEMBER: 30},
        "a process or a server runs 20 ms of each 200 ms", "P5, P9: slow processes end waits late, never early",
    ),
    Entry(
        FaultKind.RESTART, {**_each(30, POSTGRES, NATS, TEMPORAL, NATS_MEMBER)},
        "a server is stopped in order and started again", "P14",
    ),
    Entry(
        FaultKind.ROLL, _each(20, EVERY_PROCESS, EVERY_AGENT),
        "every process of one sort is ended in order, started and waited for, one after another, as an upgrade does",
        "P9, P10: what one process leaves another one continues",
    ),
    Entry(
        FaultKind.CLOCK, _each(20, PROCESS, AGENT, SITE_AGENT),
        "the wall clock of one process steps by one hour, forward or back, and steps back after 2 to 8 s",
        "P5: deadlines are evaluated by PostgreSQL's clock; P10: agents evaluate expiry by the server's time",
    ),
    Entry(
        FaultKind.SLOW_FSYNC, _each(20, POSTGRES, AGENT),
        "each fsync takes 0.2 s longer", "P14: nothing is acknowledged before it is durable",
    ),
    Entry(
        FaultKind.FULL, _each(30, POSTGRES, NATS, AGENT),
        "no room: PostgreSQL's file system has its size reduced to what it holds, no file of NATS or of the agent may grow. "
        "Then there is room, and an operator starts what ended, and NATS in any case",
        "P13, P14: refused by a named error, nothing acknowledged is lost",
    ),
    Entry(
        FaultKind.EXPIRE, _each(20, AGENT),
        "an agent is killed and starts with a certificate that has ended, and with an unused token",
        "P10: an expired certificate authenticates nothing; the agent enrols again",
    ),
    Entry(
        FaultKind.TERMINATE, _each(20, POSTGRES),
        "`pg_terminate_backend` of every session of one role", "P12: `outcome_unknown`, and the key resolves it",
    ),
    Entry(
        FaultKind.EXHAUST, _each(20, POSTGRES),
        "another user takes every connection, and one of Berth's roles loses its own and gets no other",
        "P13: named errors at a bound",
    ),
    Entry(
        FaultKind.LOCK, _each(20, POSTGRES),
        "another session holds `access exclusive` on a table for 0.5 to 5 s", "P9, P13: waits for locks are bounded",
    ),
    Entry(
        FaultKind.OPEN_TRANSACTION, _each(20, POSTGRES),
        "a transaction of another session has an id and a snapshot, and stays open for 2 to 10 s",
        "P3: no open transaction stalls the log",
    ),
    Entry(
        FaultKind.WIPE, _each(30, NATS),
        "NATS is killed and its store deleted; the relay makes the stream anew", "P3: at the same sequences",
    ),
    Entry(FaultKind.CUT, _each(30, *LINKS), "a link passes nothing for 0.3 to 4 s; it arrives afterwards", "P12, P14"),
    Entry(FaultKind.ONE_WAY, _each(30, *LINKS), "a link passes no answers; they arrive afterwards", "P12, P4"),
    Entry(FaultKind.RESET, _each(30, *LINKS), "a link ends its connections and refuses new ones for up to 1.5 s", "P12"),
    Entry(FaultKind.DELAY, _each(30, *LINKS), "each chunk is 0.15 s late", "P5, P9"),
    Entry(FaultKind.JITTER, _each(30, *LINKS), "each chunk is 0 to 0.3 s late", "P5, P9"),
    Entry(
        FaultKind.LOSS, _each(30, *LINKS),
        "a quarter of the chunks wait 0.2 to 0.8 s for a repetition, and what is behind them waits too", "P5, P9",
    ),
    Entry(FaultKind.TRICKLE, _each(30, *LINKS), "bytes arrive one by one", "P4, P12: no part of a message is taken for all"),
    Entry(
        FaultKind.STALL, _each(30, *LINKS), "half of each message arrives, the other half 0.5 to 4 s later", "P12, P13",
    ),
    Entry(
        FaultKind.HALF_CLOSE, _each(30, *LINKS),
        "the server's side of each connection ends and the client's does not", "P12, P13: no connection is kept for ever",
    ),
    Entry(
        FaultKind.VANISH, _each(30, *LINKS),
        "nothing that is sent on today's connections is acknowledged again, for good", "P9, P12: waits without an answer end",
    ),
    Entry(
        FaultKind.BREAK, _each(20, DRIVER),
        "a node's driver fails by one of its switches (`docs/reference/sandbox-driver.md`)", "P6, P9",
    ),
    Entry(
        FaultKind.PRIMARY_KILLED, _each(40, CLUSTER), "PostgreSQL of the primary dies, its Patroni stays",
        "P14: an acknowledged commit is on the standby that leads next",
    ),
    Entry(FaultKind.PRIMARY_LOST, _each(40, CLUSTER), "PostgreSQL and Patroni of the primary die", "P14"),
    Entry(
        FaultKind.PRIMARY_FROZEN, _each(60, CLUSTER),
        "the primary stops for 25 to 35 s and goes on when another one leads", "P1, P14: a deposed primary serves nothing",
    ),
    Entry(
        FaultKind.SWITCHOVER, _each(40, CLUSTER), "Patroni moves the primary, and moves it back after 10 to 15 s",
        "P3: publishing continues on each timeline",
    ),
    Entry(
        FaultKind.LAG, _each(40, CLUSTER), "neither standby receives WAL for 3 to 8 s, so commits wait",
        "P12: `outcome_unknown`, and the key resolves it",
    ),
    Entry(
        FaultKind.STANDBYS_LOST, _each(60, CLUSTER), "both standbys die, and then PostgreSQL of the same primary",
        "P3, P14: what no standby has is not published",
    ),
    Entry(
        FaultKind.PARTITION, _each(30, NATS_MEMBER), "two NATS servers and the third do not reach each other",
        "P3: one order, from the side with the majority",
    ),
    *MACHINE_ENTRIES,
)  # fmt: skip


def faults() -> Iterator[tuple[FaultKind, str]]:
    """Every kind with each of its sorts."""
    for entry in CATALOGUE:
        for sort in entry.seconds_max:
            yield entry.kind, sort


def sort_of(kind: str, target: str) -> str:
    """What sort of target a name is."""
    if kind == FaultKind.BREAK:
        return DRIVER
    if kind in LINK_KINDS:
        return LINKS_BY_SERVER.get(re.sub(r"-[0-9a-c]$", "", target.rpartition(" > ")[2]), TO_API)
    if target.startswith(ROLL_PREFIX):
        return EVERY_AGENT if target == f"{ROLL_PREFIX}agent" else EVERY_PROCESS
    if target == "postgres cluster":
        return CLUSTER
    if re.fullmatch(r"nats-[0-9]", target):
        return NATS_MEMBER
    if target.startswith("agent "):
        return AGENT
    if target.startswith("site-agent"):
        return SITE_AGENT
    if target == "bmcs":
        return BMCS
    if target.startswith("machine-"):
        return BMC if kind in BMC_KINDS else MACHINE
    return SERVERS.get(target, PROCESS)


def budget_of(kind: str, sort: str) -> float:
    """How soon after its end, in seconds, an allocation created then must be active; infinite for another disturbance."""
    return next((entry.seconds_max.get(sort, math.inf) for entry in CATALOGUE if entry.kind == kind), math.inf)


def table() -> list[str]:
    """The table of the documentation."""
    lines = ["| fault | targets | what happens | promise |", "|---|---|---|---|"]
    for entry in CATALOGUE:
        budgets = sorted(set(entry.seconds_max.values()))
        sorts = "; ".join(
            f"{', '.join(sort for sort, seconds in entry.seconds_max.items() if seconds == budget)} ({budget:.0f} s)"
            for budget in budgets
        )
        lines.append(f"| `{entry.kind}` | {sorts} | {entry.what} | {entry.promise} |")
    return lines


if __name__ == "__main__":
    sys.stdout.write("\n".join(table()) + "\n")
