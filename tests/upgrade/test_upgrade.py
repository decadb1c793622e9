"""An upgrade from the last release: a process of it serves before, while and after the present code upgrades the schema."""

from __future__ import annotations

import itertools
import os
import shutil
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psycopg
import pytest

import migrations
from berth.local.servers import LocalPostgres
from migrations.functions import apply_functions, digest_of, generation, read_functions
from migrations.functions.files import FOLDER, GENERATIONS
from tests.api.calling import Caller, Place, fresh, insert_admin_key, new_place, new_tenant, one_gpu
from tests.api.processes import public_process
from tests.api.reservations.reserving import HOLDER
from tests.databases import empty_database
from tests.support.waiting import wait_for
from tests.upgrade.release import migrate_as_release, unpack_release

ROUNDS = 5
"""How often each kind of request succeeds in each phase."""


@pytest.fixture
def release(tmp_path: Path) -> Mapping[str, str]:
    """The environment of a Python that imports the code of the release."""
    return unpack_release(tmp_path / "release")


@pytest.fixture
def release_url(postgres_server: LocalPostgres, release: Mapping[str, str]) -> Iterator[str]:
    """A database that the release migrated."""
    with empty_database(postgres_server) as url:
        migrate_as_release(release, url)
        yield url


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


def replace_every_function(url: str, folder: Path) -> None:
    """Upgrade to a generation in which the text of each function differs, so that each is replaced."""
    for path in folder.glob("*/*.sql"):
        path.write_text(path.read_text() + "-- again\n")
    number = generation(folder)[0] + 1
    with (folder / GENERATIONS).open("a") as lines:
        lines.write(f"{number} {digest_of(read_functions(folder))}\n")
    with psycopg.connect(url) as connection:
        assert len(apply_functions(connection, folder)) >= len(list(folder.glob("*/*.sql")))


def keep_deprecated(folder: Path, release: Path) -> None:
    """Add the functions that only the release calls: a further generation would drop them, and while one follows
    another here, the processes that call them still run (docs/explanation/sql-functions.md, "When the old function is removed").
    """
    present = {path.stem for path in folder.glob("*/*.sql")}
    for path in release.glob("*/*.sql"):
        if path.stem not in present:
            shutil.copy(path, folder / path.parent.name / path.name)


# Long, as all that runs the recorded release. tests/schema upgrades without load in `make test`.
@pytest.mark.full
def test_no_request_fails_while_the_database_is_upgraded(
    release_url: str, release: Mapping[str, str], tmp_path: Path
) -> None:
    key = insert_admin_key(release_url)
    folder = Path(shutil.copytree(FOLDER, tmp_path / "functions"))
    keep_deprecated(folder, Path(release["PYTHONPATH"].partition(os.pathsep)[0]) / "migrations" / "functions")
    with (
        public_process(release_url, tmp_path / "old", release) as old_http,
        psycopg.connect(release_url, autocommit=True) as database,
    ):
        place = new_place(Caller(old_http, key), database)
        with traffic_at(old_http, key, place).running() as old:
            old.wait_for_rounds()
            assert migrations.upgrade(release_url) == migrations.head_revision()
            for _ in itertools.repeat(None, 3):
                old.wait_for_rounds()
                replace_every_function(release_url, folder)
            with (
                public_process(release_url, tmp_path / "new") as new_http,
                traffic_at(new_http, key, place).running() as new,
            ):
                new.wait_for_rounds()
                old.wait_for_rounds()
