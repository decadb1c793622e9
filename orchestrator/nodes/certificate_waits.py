"""Wait until the issuer has decided a recorded request for a certificate."""

from __future__ import annotations

import asyncio
import time
from datetime import datetime
from typing import Final
from uuid import UUID

from orchestrator.database.transactions import Database
from orchestrator.nodes.store.certificate_requests import read_decision
from orchestrator.nodes.store.certificates import CONFLICT
from orchestrator.nodes.store.holders import Holder
from orchestrator.problems import CertificatePending, IdentityConflict, Unauthenticated

_PAUSE_SECONDS_LEAST: Final = 0.02
_PAUSE_SECONDS_MOST: Final = 0.5


async def wait_for_certificate(
    database: Database, request: UUID, seconds_max: float, holder: Holder = Holder.NODE
) -> tuple[str, datetime]:
    """The certificate as PEM, and the database's time when it was read. No transaction stays open meanwhile.

    Raises `CertificatePending` if the issuer has decided nothing in time (the same request later returns the certificate),
    `Unauthenticated` if it has refused, `IdentityConflict` after a fork.
    """
    deadline = time.monotonic() + seconds_max
    pause = _PAUSE_SECONDS_LEAST
    while True:
        async with database.read_one() as reading:
            decision = await read_decision(reading, request, holder)
        if decision.pem is None and decision.is_conflicted:
            raise IdentityConflict(CONFLICT)
        if decision.refusal is not None:
            raise Unauthenticated(f"no certificate is issued: {decision.refusal}; enrol again")
        if decision.pem is not None:
            return decision.pem, decision.server_time
        if time.monotonic() + pause > deadline:
            raise CertificatePending("the issuer has not signed the request yet; send the same request again")
        await asyncio.sleep(pause)
        pause = min(2 * pause, _PAUSE_SECONDS_MOST)
