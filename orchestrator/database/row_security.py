"""Names the tenants whose rows a statement may touch, for the policies of the public API's role (migrations/policies.sql).

`berth.tenants` is an array of ids, or `*` for acts of operators and of the platform. It is set for one transaction. Where it is
not set, the policies show no row.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Self
from uuid import UUID

import psycopg
from psycopg.abc import Params
from psycopg.pq import TransactionStatus

from berth.process.database_connections import AnsweringConnection

PLATFORM: Final = "*"
_NAME_TENANTS = b"select set_config('berth.tenants', %s, true)"


def tenants_setting(tenants: Iterable[UUID]) -> str:
    """The value of `berth.tenants` for these tenants. An operator's idempotency keys and keyspace have an id as well."""
    return f"{{{','.join(sorted({str(tenant) for tenant in tenants}))}}}"


class TenantCursor(psycopg.AsyncCursor[Any]):
    """Sets `berth.tenants` in front of the first statement of each transaction, in the same round trip."""

    async def execute(self, query: Any, params: Params | None = None, **options: Any) -> Self:
        """As `AsyncCursor.execute`."""
        tenants = self._tenants()
        if tenants is None:
            return await super().execute(query, params, **options)
        prepared = self._prepared_count()
        try:
            async with self.connection.pipeline():
                await psycopg.AsyncCursor(self.connection).execute(_NAME_TENANTS, (tenants,))
                return await super().execute(query, params, **options)
        except psycopg.Error:
            self._forget_prepared(prepared)
            raise

    async def executemany(self, query: Any, params_seq: Iterable[Params], *, returning: bool = False) -> None:
        """As `AsyncCursor.executemany`."""
        tenants = self._tenants()
        if tenants is None:
            await super().executemany(query, params_seq, returning=returning)
            return
        prepared = self._prepared_count()
        try:
            async with self.connection.pipeline():
                await psycopg.AsyncCursor(self.connection).execute(_NAME_TENANTS, (tenants,))
                await super().executemany(query, params_seq, returning=returning)
        except psycopg.Error:
            self._forget_prepared(prepared)
            raise

    def _prepared_count(self) -> int:
        """How many statements the connection has prepared since it was opened."""
        return self.connection._prepared._prepared_idx

    def _forget_prepared(self, before: int) -> None:
        """After a pipeline that failed, count no statement as prepared any more if it has begun to prepare one.

        `before`: the count before it.

        psycopg counts a statement as prepared when it sends the preparation, and takes that back after a failure, but not in a
        pipeline: each later use of the statement would fail for as long as the connection is open.
        """
        if self._prepared_count() != before:
            self.connection._prepared.clear()

    def _tenants(self) -> str | None:
        """What to set: None where no tenants are named, and within a transaction, where it is set."""
        connection = self.connection
        assert isinstance(connection, TenantConnection)
        return connection.tenants if connection.info.transaction_status == TransactionStatus.IDLE else None


class TenantConnection(AnsweringConnection):
    """A connection whose user names the tenants: `tenants` is the value of `berth.tenants`, None to set nothing."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.tenants: str | None = None
        self.cursor_factory = TenantCursor
