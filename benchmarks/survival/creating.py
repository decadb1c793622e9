"""Clients that create through every failure, and note what was acknowledged and when."""

from __future__ import annotations

import http.client
import itertools
import json
import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from typing import Self

from benchmarks.load import create_bodies
from benchmarks.seeding import BenchTenant

TIMEOUT_SECONDS = 30.0
PAUSE_SECONDS = 0.02
"""Between two creates of a client."""


class Clients(ABC):
    """So many clients in threads, each with one request under way, until the block ends."""

    def __init__(self, port: int, clients: int, tenants: Sequence[BenchTenant]) -> None:
        self._port = port
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._send, args=(tenants[number % len(tenants)], number), daemon=True)
            for number in range(clients)
        ]

    @abstractmethod
    def _send(self, tenant: BenchTenant, number: int) -> None:
        """One client: send requests until `_stopping`."""

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *ending: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()


class Creating(Clients):
    """Clients that create; whatever one gets, the next create follows."""

    def __init__(self, port: int, clients: int, tenants: Sequence[BenchTenant]) -> None:
        super().__init__(port, clients, tenants)
        self.acknowledged: list[tuple[str, float, float]] = []
        """Id, when the create was sent and when it was acknowledged, in seconds of the monotonic clock."""

    def first_sent_after(self, moment: float, seconds_max: float) -> float:
        """Seconds from the moment until the first create that was sent after it is acknowledged. Raises RuntimeError."""
        while time.monotonic() < moment + seconds_max:
            found = [done for _, sent, done in self.acknowledged[-1000:] if sent > moment]
            if found:
                return min(found) - moment
            time.sleep(0.01)
        raise RuntimeError(f"no create was acknowledged within {seconds_max:.0f} s")

    def _send(self, tenant: BenchTenant, number: int) -> None:
        bodies = itertools.cycle(create_bodies(tenant, 10)[number % 10 :])
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=TIMEOUT_SECONDS)
        for path, body, api_key in bodies:
            if self._stopping.is_set():
                break
            headers = {
                "Authorization": f"Bearer {api_key}", "Content-Type": "application/json", "Idempotency-Key": str(uuid.uuid4()),
            }  # fmt: skip
            sent = time.monotonic()
            try:
                connection.request("POST", path, body, headers)
                answer = connection.getresponse()
                content = answer.read()
            except (OSError, http.client.HTTPException):
                connection.close()
                continue
            if answer.status == http.client.CREATED:
                self.acknowledged.append((json.loads(content)["allocation_id"], sent, time.monotonic()))
            # A server that refuses at once must not take the processors that a promotion needs, and slots are finite.
            self._stopping.wait(PAUSE_SECONDS)
        with suppress(OSError):
            connection.close()
