"""Requests of a tenant at one process, without a pause, while a database is upgraded."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from berth.local.authority import ensure_authority, sign_present_keys
from tests.api.calling import Caller, Place, fresh, new_tenant, one_gpu
from tests.api.processes import public_process
from tests.api.reservations.reserving import HOLDER
from tests.support.waiting import wait_for

ROUNDS = 5
"""How often each kind of request succeeds in each phase."""


@dataclass
class Traffic:
    """Requests of one tenant at one process, without a pause; counts what succeeded and keeps what did not."""

    tenant: Caller
    admin: Caller
    place: Place
    seat: str
    done: Counter[str] = field(default_factory=Counter)
    failed: list[str] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)

    def rent(self) -> None:
        """Create, release and clean up an allocation."""
        made = self._ok("create", self.tenant.call("POST", "/allocations", self.body)).json()["allocation_id"]
        self._ok("release", self.tenant.call("POST", f"/allocations/{made}/release", {}))
        body = {"runtime_verified_absent": True, "reason": "the test ran nothing"}
        self._ok("cleanup", self.admin.call("POST", f"/admin/allocations/{made}/force-cleanup", body))

    def reserve(self) -> None:
        """Hold a seat, confirm it and cancel it; hold GPUs of a later window and cancel them."""
        for wanted in ({"resources": [self.seat]}, {"sku": self.place.sku, "gpus": 1, "region": self.place.region}):
            body = {"holder_id": HOLDER, **wanted}
            made = self._ok("hold", self.tenant.call("POST", "/reservations", body)).json()["reservation_id"]
            for verb in ("confirm", "cancel"):
                self._ok(verb, self.tenant.call("POST", f"/reservations/{made}/{verb}", {"holder_id": HOLDER}))

    def read(self) -> None:
        """Read lists."""
        for path in ("/allocations", "/reservations", "/resources", "/availability"):
            self._ok(path, self.tenant.call("GET", path))

    def _ok(self, kind: str, answer: httpx.Response) -> httpx.Response:
        if answer.status_code >= 400:
            self.failed.append(f"{kind}: {answer.status_code} {answer.text}")
            self.stop.set()
        self.done[kind] += 1
        return answer

    def _repeat(self, act: str) -> None:
        while not self.stop.is_set():
            getattr(self, act)()

    def wait_for_rounds(self) -> None:
        """Return when each kind of request succeeded `ROUNDS` times from now on, or one failed."""
        before = Counter(self.done)
        kinds = ("cleanup", "cancel", "/availability")
        wait_for(
            lambda: bool(self.failed) or all(self.done[kind] - before[kind] >= ROUNDS for kind in kinds),
            f"{kinds}, each {ROUNDS} times",
        )

    @contextmanager
    def running(self) -> Iterator[Traffic]:
        """Send requests until the end of the block; fail if one was refused or unanswered."""
        with ThreadPoolExecutor(3) as pool:
            self.body = one_gpu(self.tenant, self.place)
            running: list[Future[None]] = [pool.submit(self._repeat, act) for act in ("rent", "reserve", "read")]
            try:
                yield self
            finally:
                self.stop.set()
        assert self.failed == []
        for future in running:
            future.result()


def traffic_at(http: httpx.Client, key: str, place: Place) -> Traffic:
    """A new tenant with a seat at this process."""
    admin = Caller(http, key)
    return Traffic(new_tenant(admin), admin, place, admin.make("/admin/resources", {"id": fresh("seat")})["id"])


@contextmanager
def release_process(database_url: str, directory: Path, release: Mapping[str, str]) -> Iterator[httpx.Client]:
    """A public listener with the code of the release, which refuses a key set that names CAs of deploy systems."""
    keys = directory.with_name(f"{directory.name}-keys")
    keys.mkdir(mode=0o700)
    earlier = ensure_authority(keys, "berth.local")
    sign_present_keys(earlier, deploy_cas=False)
    with public_process(database_url, directory, {**release, "BERTH_KEY_SET_FILE": str(earlier.key_set)}) as http:
        yield http
