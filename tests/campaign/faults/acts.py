"""What each kind of fault does: an act begins, and ends later. An act may be begun and ended repeatedly until it succeeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tests.campaign.faults.act import Act
from tests.campaign.faults.database import Exhaust, Lock, OpenTransaction, Terminate
from tests.campaign.faults.high_availability import (
    Lag,
    Partition,
    PrimaryFrozen,
    PrimaryKilled,
    PrimaryLost,
    StandbysLost,
    Switchover,
)
from tests.campaign.faults.links import MODES, Link, Vanish
from tests.campaign.faults.processes import Break, Clock, Expire, Kill, Pause, Restart, Roll, SlowFsync, Starve
from tests.campaign.faults.stores import Full, Wipe
from tests.campaign.machines.faults import BmcFault, DeployKilled
from tests.campaign.schedule import BMC_KINDS, Fault, FaultKind
from tests.campaign.stage import Stage

ACTS: Mapping[FaultKind, Callable[[Stage, Fault], Act]] = {
    FaultKind.KILL: Kill,
    FaultKind.PAUSE: Pause,
    FaultKind.STARVE: Starve,
    FaultKind.RESTART: Restart,
    FaultKind.ROLL: Roll,
    FaultKind.CLOCK: Clock,
    FaultKind.SLOW_FSYNC: SlowFsync,
    FaultKind.FULL: Full,
    FaultKind.EXPIRE: Expire,
    FaultKind.TERMINATE: Terminate,
    FaultKind.EXHAUST: Exhaust,
    FaultKind.LOCK: Lock,
    FaultKind.OPEN_TRANSACTION: OpenTransaction,
    FaultKind.WIPE: Wipe,
    FaultKind.VANISH: Vanish,
    FaultKind.BREAK: Break,
    FaultKind.PRIMARY_KILLED: PrimaryKilled,
    FaultKind.PRIMARY_LOST: PrimaryLost,
    FaultKind.PRIMARY_FROZEN: PrimaryFrozen,
    FaultKind.SWITCHOVER: Switchover,
    FaultKind.LAG: Lag,
    FaultKind.STANDBYS_LOST: StandbysLost,
    FaultKind.PARTITION: Partition,
    **dict.fromkeys(BMC_KINDS, BmcFault),
    FaultKind.BMCS_KILLED: Kill,
    FaultKind.BMCS_FROZEN: Pause,
    FaultKind.DEPLOY_KILLED: DeployKilled,
    **dict.fromkeys(MODES, Link),
}
