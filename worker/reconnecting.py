"""Connects to Temporal anew when the client certificate, the CA or the API key of Temporal changes, without a restart."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import structlog
from temporalio.client import Client as TemporalClient
from temporalio.service import RPCError

from berth.process.temporal_connections import UnusableTemporalSettings, files_of, read_connection
from worker.connecting import NotConnected, connect_temporal_once
from worker.metrics import TEMPORAL_CREDENTIALS_STALE
from worker.payloads import PayloadKeys
from worker.settings import Settings

CONNECT_SECONDS_MAX = 10.0

log = structlog.get_logger()

_Signature = tuple[tuple[int, int, int], ...] | None


class TemporalReconnection:
    """Replaces the client when the files of its connection change and Temporal accepts what they hold.

    Until then the client in use stays: a half-replaced pair of files, or a key that Temporal does not know yet, is tried
    again in each round. Constructed before the first connection is made, so that no change is missed.
    """

    def __init__(self, settings: Settings, keys: PayloadKeys) -> None:
        self._settings = settings
        self._keys = keys
        self._files = files_of(settings)
        self._in_use = _signature(self._files)
        self._refused: str | None = None

    async def run(self, use: Callable[[TemporalClient], None]) -> None:
        """Search for changes until cancelled; call `use` with each new client."""
        while self._files:
            await asyncio.sleep(self._settings.temporal_reload_seconds)
            await self._reconnect_if_changed(use)
        await asyncio.Event().wait()

    async def _reconnect_if_changed(self, use: Callable[[TemporalClient], None]) -> None:
        present = _signature(self._files)
        if present is not None and present == self._in_use:
            self._note_refusal(None)
            return
        try:
            connection = read_connection(self._settings.temporal_address, self._settings)
            async with asyncio.timeout(CONNECT_SECONDS_MAX):
                client = await connect_temporal_once(self._settings, connection, self._keys)
        except (UnusableTemporalSettings, NotConnected, RPCError, TimeoutError) as error:
            self._note_refusal(str(error) or type(error).__name__)
            return
        use(client)
        self._in_use = present
        self._note_refusal(None)
        log.info("temporal_credentials_reloaded", files=[path.name for path in self._files])

    def _note_refusal(self, why: str | None) -> None:
        TEMPORAL_CREDENTIALS_STALE.set(why is not None)
        if why is not None and why != self._refused:
            log.warning("temporal_credentials_not_reloaded", why=why)
        self._refused = why


def _signature(files: list[Path]) -> _Signature:
    """What changes when a file is written or replaced; None if one of them is missing."""
    try:
        found = [path.stat() for path in files]
    except OSError:
        return None
    return tuple((each.st_ino, each.st_size, each.st_mtime_ns) for each in found)
