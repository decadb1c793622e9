"""Transactions against Postgres, and what their failures mean for the caller.

Read and write sessions are different types, so a query cannot write by accident. Everything runs in READ COMMITTED: safety
rests on constraints and row locks, never on SERIALIZABLE (TRAPS). Timeouts on the session bound every wait (P13).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

import sqlalchemy.exc
from sqlalchemy import CursorResult, Executable, TextClause, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from berth.process.database_connections import ANSWER_SECONDS_MAX, was_silent
from berth.process.json_objects import JsonObject
from orchestrator.database.calls import (
    LINK,
    CallConnections,
    CallGroup,
    FunctionCall,
    leave_standbys,
    ping_after_idling,
    require_few_waiting,
    session_options,
    set_options,
)
from orchestrator.database.outcomes import (
    Bound,
    BoundReached,
    ConnectionLost,
    LockTimeout,
    NotConfirmedYet,
    QuotaReached,
    RestoreRefused,
    RolledBack,
    ServerRefused,
    TimeOverflow,
)
from orchestrator.database.pools import Pools
from orchestrator.database.reserve import POOL_TIMEOUT_SECONDS, TOO_MANY, Ending, FindClaimant, Reserve, platform
from orchestrator.database.response_versions import HEAD, ResponseVersion
from orchestrator.database.row_security import PLATFORM, TenantConnection, tenants_setting
from orchestrator.database.sqlstates import decode, is_loss
from orchestrator.database.unconfirmed_commits import require_confirmed
from orchestrator.operations.refusals import OperationQuotaExceeded, OperationTableFull
from orchestrator.problems import (
    DatabaseUnavailable,
    NotConfirmed,
    OperationInProgress,
    OutcomeUnknown,
    Overloaded,
    Quota,
    QuotaExceeded,
    RestoreInProgress,
    SlotOverflow,
)

if TYPE_CHECKING:
    from orchestrator.database.replicas.replica import Replica

CONNECTIONS_FOR_ANYONE = 3
"""For looking up API keys (orchestrator/http/key_lookups.py): one for ending verbs, one for all other requests; one for `/ok`."""
CONNECTIONS_FOR_OWNERS = 2
"""For looking up owners (orchestrator/http/object_owners.py): of allocations, and of reservations."""
CONNECTIONS_FOR_NODES = 3
"""One call at a time for polls, one for heartbeats (orchestrator/app.py), and one of the dispatcher."""


class TransactionConflict(Exception):
    """PostgreSQL rolled the transaction back because of a concurrent one (deadlock, serialisation): a new one may succeed."""


@lru_cache(maxsize=1024)
def _parsed(statement: str) -> TextClause:
    """The statement with its :name parameters found; ours are constants, so each is parsed once."""
    return text(statement)


Values = Mapping[str, Any] | Sequence[Mapping[str, Any]] | None
"""The parameters of a statement by name, or those of each of its executions."""


class Reading:
    """A read-only transaction: one snapshot for every statement executed through it.

    `replayed`: the head of the log that a standby has; None on the primary, which has everything.
    """

    def __init__(self, connection: AsyncConnection, replayed: int | None = None) -> None:
        self._connection = connection
        self.replayed = replayed

    async def execute(self, statement: Executable | str, parameters: Values = None) -> CursorResult[Any]:
        """Run one statement; text is taken as SQL with :name parameters."""
        sql = _parsed(statement) if isinstance(statement, str) else statement
        return await self._connection.execute(sql, parameters)


class Transaction(Reading):
    """A read-write transaction. Inside it nothing is awaited but itself (DESIGN §3).

    `operation_event`: the last of its events that carries the key of its operation, if one does.
    `in_operation`: it has reserved an operation key. `audited`: what its command adds to the operation's audit row.
    """

    operation_event: UUID | None = None
    in_operation: bool = False
    audited: JsonObject | None = None

    def __init__(self, connection: AsyncConnection, response_version: ResponseVersion | None = None) -> None:
        super().__init__(connection)
        self._response_version = response_version

    async def note_version(self) -> None:
        """Note the head as the version of the response: statements after this one read at least as much."""
        if self._response_version is not None:
            self._response_version.note((await self.execute(HEAD)).scalar_one())


class Database:
    """Transactions on behalf of one process, or of one request (`for_request`).

    `response_version`: where the reads of a request note the head, if its response carries a version.
    `ending_verb`: what the request ends (release, cancel, confirm ...), if it does; such requests are never shed.
    `claimant` returns for which principal it may take the reserve, and None if the request names no object of its principal.
    `tenants` returns whose rows its transactions may touch, and None where none are named: the public API's role then sees no
    row of a tenant (orchestrator/database/row_security.py).
    """

    def __init__(
        self,
        pools: Pools,
        response_version: ResponseVersion | None = None,
        ending_verb: str = "",
        tenants: Callable[[], str | None] = lambda: None,
        claimant: FindClaimant = platform,
    ) -> None:
        self._pools = pools
        self.response_version = response_version
        self._ending = Ending(ending_verb, claimant)
        self._tenants = tenants

    @property
    def ending_verb(self) -> str:
        """What the request ends; empty: nothing."""
        return self._ending.verb

    @property
    def claimant(self) -> FindClaimant:
        """Returns the principal for which the reserve may be taken."""
        return self._ending.claimant

    @property
    def tenants(self) -> str | None:
        """Whose rows its transactions may touch (orchestrator/database/row_security.py)."""
        return self._tenants()

    def for_request(
        self,
        response_version: ResponseVersion | None = None,
        ending_verb: str = "",
        tenants: Callable[[], str | None] | None = None,
        claimant: FindClaimant = platform,
    ) -> Database:
        """The same pools, on behalf of a request; its `tenants` are asked for at each transaction, None: as here."""
        return Database(self._pools, response_version, ending_verb, tenants or self._tenants, claimant)

    def for_claimant(self, claimant: FindClaimant) -> Database:
        """The same, with the reserve on behalf of this claimant."""
        return Database(self._pools, self.response_version, self.ending_verb, self._tenants, claimant)

    def needs_reserve(self, group: CallGroup) -> bool:
        """Whether a call of the group that began now would take a connection of the reserve."""
        return bool(self.ending_verb) and self._pools.is_exhausted(group)

    def for_tenants(self, *tenants: UUID) -> Database:
        """The same, for acts on rows of these tenants alone."""
        setting = tenants_setting(tenants)
        return Database(self._pools, self.response_version, self.ending_verb, lambda: setting, self.claimant)

    def for_platform(self) -> Database:
        """The same, for acts of operators and of the platform, on rows of any tenant."""
        return Database(self._pools, self.response_version, self.ending_verb, lambda: PLATFORM, self.claimant)

    def note_version(self, version: int) -> None:
        """Note the version of a part of the response that was not read through this object."""
        if self.response_version is not None:
            self.response_version.note(version)

    @property
    def replica(self) -> Replica | None:
        """Standbys that serve reads of orchestrator/database/replicas/reads.py; None: the primary serves all."""
        return self._pools.replica

    def use_replica(self, replica: Replica) -> None:
        """From now on standbys may serve reads of this process that allow it."""
        self._pools.replica = replica
        self._pools.when_lost(replica.distrust)

    def when_lost(self, notify: Callable[[], None]) -> None:
        """Call `notify` whenever a connection turns out to be lost."""
        self._pools.when_lost(notify)

    def _meaning(self, error: Exception, *, committing: bool) -> Exception:
        """What the failure means for the caller."""
        if isinstance(error, sqlalchemy.exc.DBAPIError) and is_loss(error):
            self._pools.note_loss()
        return _meaning(error, committing)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        """A read-write transaction that commits at the end of the block, or rolls back on any exception.

        Raises `DatabaseUnavailable` when it certainly did not commit for want of a connection, `OutcomeUnknown` when
        the connection was lost at COMMIT, `TransactionConflict` when a retry in a new transaction may succeed,
        `OperationInProgress` when a lock was not to be had in time.
        """
        committing = False
        try:
            async with self._pools.connection(self._ending, self.tenants) as connection:
                transaction = await connection.begin()
                try:
                    yield Transaction(connection, self.response_version)
                except BaseException:
                    if not connection.invalidated:
                        await transaction.rollback()
                    raise
                committing = True
                await transaction.commit()
        except (sqlalchemy.exc.DBAPIError, sqlalchemy.exc.TimeoutError) as error:
            raise self._meaning(error, committing=committing) from error

    @asynccontextmanager
    async def autocommit(self) -> AsyncIterator[Transaction]:
        """A transaction of exactly one statement: one round trip instead of three, as BEGIN and COMMIT are implied.

        The price: when the connection is lost the outcome is not known, so that is always `OutcomeUnknown`.
        Otherwise raises as `transaction` does.
        """
        sent = False
        try:
            async with self._pools.connection(self._ending, self.tenants) as connection:
                await set_options(connection, isolation_level="AUTOCOMMIT")
                sent = True
                yield Transaction(connection, self.response_version)
        except (sqlalchemy.exc.DBAPIError, sqlalchemy.exc.TimeoutError) as error:
            raise self._meaning(error, committing=sent) from error

    @asynccontextmanager
    async def function_call(self, group: CallGroup) -> AsyncIterator[FunctionCall]:
        """As `autocommit`, for a statement that returns one value, at a fraction of the cost."""
        async with self._call(group, writes=True) as call:
            yield call

    @asynccontextmanager
    async def read_call(self, group: CallGroup) -> AsyncIterator[FunctionCall]:
        """As `function_call`, for a statement that writes nothing: a lost connection is `DatabaseUnavailable`."""
        async with self._call(group, writes=False) as call:
            yield call

    @asynccontextmanager
    async def _call(self, group: CallGroup, *, writes: bool) -> AsyncIterator[FunctionCall]:
        sent = False
        try:
            async with self._pools.call(group, self._ending, self.tenants) as call:
                sent = True
                yield call
        except (sqlalchemy.exc.DBAPIError, sqlalchemy.exc.TimeoutError) as error:
            raise self._meaning(error, committing=sent and writes) from error

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[Reading]:
        """A read-only snapshot. Reads fail closed with `DatabaseUnavailable`."""
        try:
            async with self._pools.connection(self._ending, self.tenants) as connection:
                await set_options(connection, isolation_level="REPEATABLE READ", postgresql_readonly=True)
                async with connection.begin():
                    yield await self._noting_head(Reading(connection))
        except (sqlalchemy.exc.DBAPIError, sqlalchemy.exc.TimeoutError) as error:
            raise self._meaning(error, committing=False) from error

    @asynccontextmanager
    async def read_one(self) -> AsyncIterator[Reading]:
        """A read of exactly one statement, which is its own snapshot: one round trip instead of three."""
        try:
            async with self._pools.connection(self._ending, self.tenants) as connection:
                await set_options(connection, isolation_level="AUTOCOMMIT")
                yield await self._noting_head(Reading(connection))
        except (sqlalchemy.exc.DBAPIError, sqlalchemy.exc.TimeoutError) as error:
            raise self._meaning(error, committing=False) from error

    async def _noting_head(self, reading: Reading) -> Reading:
        if self.response_version is not None:
            self.response_version.note((await reading.execute(HEAD)).scalar_one())
        return reading

    async def close(self) -> None:
        """Close every connection."""
        await self._pools.close()


def _meaning(error: Exception, committing: bool) -> Exception:
    if isinstance(error, sqlalchemy.exc.TimeoutError):
        return Overloaded(TOO_MANY)
    assert isinstance(error, sqlalchemy.exc.DBAPIError)
    match decode(error):
        case RolledBack(sqlstate):
            return TransactionConflict(sqlstate)
        case LockTimeout():
            return OperationInProgress("another request holds a lock that this one needs; retry with the same key")
        case QuotaReached(quota, tenant_id, limit, used):
            refusal = OperationQuotaExceeded if quota is Quota.OPERATIONS else QuotaExceeded
            return refusal.of(quota, limit=limit, used=used, tenant_id=tenant_id)
        case BoundReached(Bound.OPERATIONS):
            return OperationTableFull("the operations table is full; nothing was done; retry later")
        case TimeOverflow():
            return SlotOverflow("a deadline or a retirement would lie beyond the times that can be represented")
        case ServerRefused():
            return DatabaseUnavailable(
                "the database cannot take this now (disk, memory, connections or time); nothing was done"
            )
        case NotConfirmedYet(why):
            return NotConfirmed(why)
        case RestoreRefused(why):
            return RestoreInProgress(f"{why}; nothing was done")
        case ConnectionLost() if committing:
            return OutcomeUnknown("the connection to the database was lost at commit; retry with the same key")
        case ConnectionLost():
            return DatabaseUnavailable("the database cannot be reached; nothing was done; retry later")
        case _:
            return error


def connect_database(
    url: str,
    *,
    pool_size: int,
    reserve_size: int,
    lock_timeout_seconds: float,
    transaction_timeout_seconds: float,
    application: str,
    operations_max: int | None = None,
    tenant_rows_max: Mapping[str, int] | None = None,
    answer_seconds_max: float = ANSWER_SECONDS_MAX,
) -> Database:
    """Make the pools; nothing is connected yet. `operations_max`: how many operations these sessions may let there be.

    `tenant_rows_max`: the default of each tenant's quota of operations, reservations and holds, by these names.
    `answer_seconds_max`: how long a statement may take before its server counts as lost (berth/process/database_connections.py).
    """
    address = "postgresql://" + url.partition("://")[2]
    options = session_options(lock_timeout_seconds, transaction_timeout_seconds, operations_max, tenant_rows_max or {})
    session: dict[str, Any] = {"options": options, "application_name": application, **LINK}

    async def connect(*arguments: Any, **parameters: Any) -> TenantConnection:
        autocommit = bool(parameters.pop("autocommit", False))
        connection = await TenantConnection.connect(*arguments, autocommit=True, **parameters)
        connection.answer_seconds_max = answer_seconds_max
        if was_silent():
            await require_few_waiting(connection)
        try:
            await require_confirmed(connection, answer_seconds_max)
            await connection.set_autocommit(autocommit)
        except BaseException:
            await connection.close()
            raise
        return connection

    def pool(size: int) -> AsyncEngine:
        engine = create_async_engine(
            address.replace("://", "+psycopg://", 1),
            pool_size=size,
            max_overflow=0,
            pool_timeout=POOL_TIMEOUT_SECONDS,
            hide_parameters=True,  # a failed statement is logged; its parameters hold what tenants wrote
            connect_args={**session, "async_creator_fn": connect},
        )
        return engine

    engines = pool(pool_size), pool(reserve_size)
    calls = {
        group: CallConnections(partial(connect, address, autocommit=True, **session), size)
        for group, size in (
            (CallGroup.CREATES, max(1, pool_size // 2)),
            (CallGroup.RESERVATIONS, pool_size),
            (CallGroup.NODES, CONNECTIONS_FOR_NODES),
            (CallGroup.ANYONE, CONNECTIONS_FOR_ANYONE),
            (CallGroup.OWNERS, CONNECTIONS_FOR_OWNERS),
        )
    }
    pools = Pools(engines[0], Reserve(engines[1], reserve_size), calls, pool_size)
    for engine in engines:
        ping_after_idling(engine, pools.note_loss)
        leave_standbys(engine)
    return Database(pools)
