"""What shows that a fault is there, for tests that begin and end faults."""

from __future__ import annotations

import re
import resource
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import psutil
import psycopg

from migrations.roles import Role
from node_agent.identity import IdentityStore, validity
from tests.campaign.faults.catalogue import sort_of
from tests.campaign.faults.links import MODES
from tests.campaign.machines.faults import is_armed, is_switched
from tests.campaign.schedule import BMC_KINDS, DETAILS, Fault, FaultKind, Targets, candidates
from tests.campaign.stage import Stage
from tests.proxy import Mode


def fault_of(kind: FaultKind, sort: str, targets: Targets, seconds: float = 2.0) -> Fault:
    """A fault of this kind at the first target of this sort."""
    target = next(target for target in candidates(kind, targets) if sort_of(kind, target) == sort)
    return Fault(0.0, kind, target, seconds, DETAILS[kind][0] if kind in DETAILS else "")


def statuses(stage: Stage, fault: Fault) -> set[str]:
    """The state of the process of its target."""
    return {psutil.Process(stage.pid_of(fault.target)).status()}


def query(stage: Stage, statement: str, *values: object) -> list[tuple[object, ...]]:
    """The rows of a query, in a new session."""
    with psycopg.connect(stage.endpoints.database_url, autocommit=True, connect_timeout=5) as connection:
        return connection.execute(statement.encode(), values).fetchall()


def expired(stage: Stage, fault: Fault) -> bool:
    """Whether the agent's certificate on the disk has ended."""
    identity = IdentityStore(stage.state.agent(fault.target.removeprefix("agent "))).load()
    assert identity is not None
    return validity(identity.credentials.certificate_pem).not_after < datetime.now(UTC)


def cannot_grow(stage: Stage, fault: Fault) -> bool:
    """Whether there is no room."""
    if fault.target != "postgres":
        return resource.prlimit(stage.pid_of(fault.target), resource.RLIMIT_FSIZE)[0] == 1
    try:
        with psycopg.connect(stage.endpoints.database_url, connect_timeout=5) as connection:
            connection.execute("create table filling as select repeat('x', 1000) from generate_series(1, 100000)")
            connection.rollback()
    except psycopg.errors.DiskFull:
        return True
    except psycopg.Error:
        return False
    return False


def refused(stage: Stage, fault: Fault) -> bool:
    """Whether the role gets no session."""
    url = stage.endpoints.database_url_of(Role(fault.detail))
    try:
        psycopg.connect(url, connect_timeout=5).close()
    except psycopg.OperationalError as error:
        return re.search("too many|reserved", str(error)) is not None
    return False


def locked(stage: Stage, fault: Fault) -> bool:
    """Whether a session holds the table."""
    found = query(stage, "select mode from pg_locks where relation = %s::regclass", fault.detail)
    return ("AccessExclusiveLock",) in found


def interposed(stage: Stage, fault: Fault) -> bool:
    """Whether the library is in the process."""
    return "interposed.so" in Path(f"/proc/{stage.pid_of(fault.target)}/maps").read_text()


EFFECTS: dict[FaultKind, Callable[[Stage, Fault], bool]] = {
    FaultKind.KILL: lambda stage, fault: stage.ends(fault.target),
    FaultKind.RESTART: lambda stage, fault: stage.ends(fault.target),
    FaultKind.PAUSE: lambda stage, fault: statuses(stage, fault) == {"stopped"},
    FaultKind.STARVE: lambda stage, fault: statuses(stage, fault) == {"stopped"},
    FaultKind.CLOCK: interposed,
    FaultKind.SLOW_FSYNC: interposed,
    FaultKind.FULL: cannot_grow,
    FaultKind.EXPIRE: expired,
    FaultKind.EXHAUST: refused,
    FaultKind.LOCK: locked,
    FaultKind.OPEN_TRANSACTION: lambda stage, fault: bool(
        query(stage, "select from pg_stat_activity where backend_xid is not null and state = 'idle in transaction'")
    ),
    FaultKind.WIPE: lambda stage, fault: not (stage.server(fault.target).directory / "jetstream").exists(),
    FaultKind.VANISH: lambda stage, fault: stage.links.by_name[fault.target].vanished > 0,
    FaultKind.BREAK: lambda stage, fault: (
        query(stage, "select faults from nodes where name = %s", fault.target) == [({fault.detail: "1"},)]
    ),
    **dict.fromkeys(BMC_KINDS, is_switched),
    FaultKind.BMCS_KILLED: lambda stage, fault: stage.ends(fault.target),
    FaultKind.BMCS_FROZEN: lambda stage, fault: statuses(stage, fault) == {"stopped"},
    FaultKind.DEPLOY_KILLED: is_armed,
    **dict.fromkeys(MODES, lambda stage, fault: stage.links.by_name[fault.target].mode is MODES[fault.kind]),
}
"""What shows that the fault is there."""


def well(stage: Stage) -> bool:
    """Whether everything runs and nothing is hurt any more."""
    answering = all(stage.answers(name) for name in stage.process_names)
    return answering and stage.dead() == [] and all(p.mode is Mode.PASS for p in stage.links.by_name.values())
