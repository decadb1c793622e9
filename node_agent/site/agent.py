"""The process of a site's agent: start, identity, lease, tasks while the lease is held, stop. Constructs all parts.

One agent of a site holds its lease, the others ask for it. The lease ends here by this machine's own clock, from
before the request that granted it; its end cancels every task. On SIGTERM the lease is given up after the tasks were cancelled.
"""

from __future__ import annotations

import asyncio
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import TypeVar
from uuid import UUID, uuid4

import structlog
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from pydantic import BaseModel

from berth.process.backoff import Backoff
from berth.process.health_server import serve_health
from berth.process.json_objects import JsonObject
from berth.process.sealed_passwords import fingerprint, new_key_pem, read_key
from node_agent.bmc_consoles.sessions import MachineSessions
from node_agent.clock import ServerClock, boot_seconds
from node_agent.connection import CredentialsRefused, NodeConnection, RequestRefused, Unreachable
from node_agent.durable_files import DirectoryOwnership, make_private_directory, write_durably
from node_agent.enrolment import SITE_PATHS, Enrolment
from node_agent.identity import IdentityStore
from node_agent.journal import Journal
from node_agent.key_sets import KeySets
from node_agent.metrics import AgentMetrics
from node_agent.problems import CannotStart
from node_agent.settings import Settings
from node_agent.site.admission import SiteTrust
from node_agent.site.bmc_liveness import BmcLiveness, ask_bmc
from node_agent.site.bmcs import Connect
from node_agent.site.effects import BmcEffects, StoreRefused
from node_agent.site.images import SiteImages
from node_agent.site.lease import Lease
from node_agent.site.media import MediaPlace, SiteMedia
from node_agent.site.metrics import SiteMetrics
from node_agent.site.ports import SitePorts
from node_agent.site.runner import Runner
from node_agent.switches.contract import Switch
from node_agent.switches.listed import read_switches
from node_agent.wiping.build import agent_version
from node_agent.wire.firmware import StoredProgress, StoreProgress
from node_agent.wire.sites import LeaseAnswer, LeaseRequest, StoredPassword, StorePassword

log = structlog.get_logger("node_agent.site")

REFUSALS_MAX = 5
RENEWALS_PER_LEASE = 4
IDENTITY_CHECK_SECONDS = 1.0
SEALING_KEY_FILE = "sealing-key.pem"
_Stored = TypeVar("_Stored", bound=BaseModel)


class SiteAgent:
    """One agent of one site. Construct it in a running event loop; `run` returns after an orderly stop."""

    def __init__(self, settings: Settings, connect: Connect) -> None:
        """Lock the state directory, open the journal. Raises CannotStart, JournalUnwritable, OSError, ValueError."""
        make_private_directory(settings.agent_state_dir)
        self._ownership = DirectoryOwnership(settings.agent_state_dir)
        self._settings = settings
        self._connect = connect
        metrics = AgentMetrics()
        self._registry = metrics.registry
        self._metrics = SiteMetrics(metrics.registry)
        self._clock = ServerClock()
        self._journal = Journal(settings.agent_state_dir / "journal", metrics, settings.agent_reports_kept_seconds)
        store = IdentityStore(settings.agent_state_dir)
        self._sealing_key = _sealing_key(store.directory / SEALING_KEY_FILE)
        self._connection = NodeConnection(store, self._clock, metrics, settings.node_api_url)
        self._key_sets = KeySets(settings.agent_state_dir, settings.root_keys_file, metrics)
        self._enrolment = Enrolment(settings, store, self._key_sets, self._clock, self._connection, None, SITE_PATHS)
        self._lease = Lease()
        self._media = SiteMedia(MediaPlace.of(settings), self._lease, metrics.registry)
        self._ports = SitePorts(_switches(settings.site_switches_file))
        self._images = SiteImages(self._media, settings.agent_state_dir)
        self._sessions = MachineSessions(self._lease, self._clock, metrics, self._metrics, self._connection.tls)
        self._run_id = uuid4()
        self._bmc_liveness = BmcLiveness(
            self._run_id, self._lease, self._connection, self._metrics, ask_bmc, settings.site_bmc_check_seconds
        )
        self._site_id: UUID | None = None
        self._changed = asyncio.Event()
        self._key_set_wanted = False
        self._refusals_in_a_row = 0
        self._runner: Runner | None = None
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        """Serve until SIGTERM or SIGINT. Raises AgentProblem with one sentence that names the reason."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stopping.set)
        life = asyncio.create_task(self._live())
        stopping = asyncio.create_task(self._stopping.wait())
        await asyncio.wait((life, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if life.done():
            life.result()
            return
        life.cancel()
        await asyncio.wait((life,))
        if self._site_id is not None:
            with suppress(Unreachable, CredentialsRefused, RequestRefused):
                await self._ask_lease(release=True)
        await self._media.stop()
        await self._connection.close()
        self._journal.close()
        self._ownership.close()
        log.info("stopped")

    async def _live(self) -> None:
        with serve_health(self._settings.metrics_host, self._settings.metrics_port, self._registry, self._state):
            await self._media.start()
            await self._enrolment.establish()
            await self._first_contact()
            async with asyncio.TaskGroup() as group:
                group.create_task(self._keep_lease())
                group.create_task(self._keep_identity())
                group.create_task(self._act())
                group.create_task(self._bmc_liveness.run())

    async def _first_contact(self) -> None:
        deadline = time.monotonic() + self._settings.agent_startup_seconds
        backoff = Backoff(most_seconds=2.0)
        while True:
            try:
                await self._ask_lease()
                await self._enrolment.require_key_set()
            except CredentialsRefused as refused:
                self._refusals_in_a_row += 1
                if self._refusals_in_a_row >= REFUSALS_MAX:
                    await self._enrolment.enrol_again(f"the server refuses this agent's certificate ({refused})")
                    self._refusals_in_a_row = 0
                why = str(refused)
            except Unreachable as error:
                await self._enrolment.replace_if_expired()
                why = str(error)
            except RequestRefused as refused:
                why = str(refused)
            else:
                key = fingerprint(self._sealing_key.public_key().public_bytes_raw())
                log.info("serving", agent_id=str(self._agent_id), site_id=str(self._site_id), sealing_key=key)
                return
            if time.monotonic() >= deadline:
                raise CannotStart(
                    f"waited {self._settings.agent_startup_seconds:.0f} s for {self._connection.url}: {why}"
                )
            log.info("waiting", for_what="node listener", why=why)
            await asyncio.sleep(backoff.next_seconds())

    @property
    def _agent_id(self) -> UUID:
        return self._enrolment.identity.credentials.node_id

    async def _ask_lease(self, *, release: bool = False) -> float:
        """Take, keep or give up the lease; return how long a lease is. Raises the connection's situations."""
        if release:
            self._drop_lease()
        request = LeaseRequest(
            run_id=self._run_id, agent_version=agent_version(), key_set_serial=self._key_sets.serial, release=release,
            sealing_key=self._sealing_key.public_key().public_bytes_raw().hex(),
        )  # fmt: skip
        asked_at = boot_seconds()
        answer = await self._connection.post("/site/v1/lease", request, LeaseAnswer)
        self._site_id = answer.site_id
        self._key_set_wanted = self._key_sets.is_wanted(answer.key_set_serial)
        self._refusals_in_a_row = 0
        if answer.held and not release:
            if self._lease.seconds_left() <= 0 or self._lease.fence != answer.fence:
                log.info("lease_taken", fence=answer.fence)
            self._lease.grant(answer.fence, answer.seconds, asked_at)
            self._metrics.held.set(1)
            self._metrics.fence.set(answer.fence)
        else:
            self._drop_lease()
        self._changed.set()
        return answer.seconds

    def _drop_lease(self) -> None:
        if self._lease.seconds_left() > 0:
            log.warning("lease_lost", fence=self._lease.fence)
        self._lease.drop()
        self._metrics.held.set(0)

    async def _keep_lease(self) -> None:
        seconds = 1.0
        while True:
            try:
                seconds = await self._ask_lease()
            except (Unreachable, CredentialsRefused, RequestRefused) as error:
                self._note(error, "lease")
            await asyncio.sleep(min(seconds, 20.0) / RENEWALS_PER_LEASE)

    async def _act(self) -> None:
        """Run tasks during each lease, one after another. Its end by this clock cancels them."""
        while True:
            if self._lease.seconds_left() <= 0:
                self._metrics.held.set(0)
                await self._wait_for_change(None)
                continue
            fence = self._lease.fence
            self._runner = self._new_runner()
            serving = asyncio.create_task(self._runner.serve())
            try:
                while not serving.done() and self._lease.fence == fence and self._lease.seconds_left() > 0:
                    changed = asyncio.create_task(self._wait_for_change(self._lease.seconds_left()))
                    await asyncio.wait((serving, changed), return_when=asyncio.FIRST_COMPLETED)
                    changed.cancel()
            finally:
                serving.cancel()
                await asyncio.wait((serving,))
            if not serving.cancelled():
                serving.result()
                self._drop_lease()  # the server says that it has ended

    async def _wait_for_change(self, seconds: float | None) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), seconds)
        self._changed.clear()

    def _new_runner(self) -> Runner:
        effects = BmcEffects(
            self._agent_id,
            self._sealing_key,
            self._connect,
            self._lease,
            self._clock,
            self._store_password,
            self._media,
            self._store_progress,
            self._images,
            self._ports,
        )
        return Runner(
            self._trust(), self._run_id, self._lease, self._journal, self._clock, effects, self._connection, self._metrics,
            self._sessions, tasks_max=self._settings.site_tasks_max, wait_seconds=self._settings.agent_wait_seconds,
        )  # fmt: skip

    async def _store_password(self, task_id: UUID, body: StorePassword) -> StoredPassword:
        return await self._store(task_id, "password", body, StoredPassword)

    async def _store_progress(self, task_id: UUID, body: StoreProgress) -> StoredProgress:
        return await self._store(task_id, "progress", body, StoredProgress)

    async def _store(self, task_id: UUID, what: str, body: BaseModel, answer: type[_Stored]) -> _Stored:
        """Ask until there is an answer. Raises StoreRefused."""
        backoff = Backoff(most_seconds=2.0)
        while True:
            try:
                return await self._connection.post(f"/site/v1/tasks/{task_id}/{what}", body, answer)
            except RequestRefused as refused:
                raise StoreRefused(str(refused)) from refused
            except (Unreachable, CredentialsRefused) as error:
                self._note(error, what)
                await asyncio.sleep(backoff.next_seconds())

    def _trust(self) -> SiteTrust:
        assert self._site_id is not None, "the first contact names the site"
        return SiteTrust.of(self._site_id, self._enrolment.key_set)

    async def _keep_identity(self) -> None:
        while True:
            if self._enrolment.expired() or self._refusals_in_a_row >= REFUSALS_MAX:
                await self._enrolment.enrol_again("this agent's certificate has expired or is refused")
                self._refusals_in_a_row = 0
            try:
                if self._enrolment.seconds_until_renewal() <= 0:
                    await self._enrolment.renew()
                elif self._key_set_wanted or (self._runner is not None and self._runner.keys_wanted.is_set()):
                    await self._enrolment.fetch_key_set()
                    self._key_set_wanted = False
                if self._runner is not None:
                    self._runner.trust = self._trust()
                    self._runner.keys_wanted.clear()
            except (Unreachable, CredentialsRefused, RequestRefused) as error:
                self._note(error, "renewal")
            await asyncio.sleep(IDENTITY_CHECK_SECONDS)

    def _note(self, error: Exception, what: str) -> None:
        if isinstance(error, CredentialsRefused):
            self._refusals_in_a_row += 1
        log.warning("request_failed", request=what, why=str(error))

    def _state(self) -> JsonObject:
        age = self._clock.seconds_since_contact()
        return {
            "ok": True,
            "lease_held": self._lease.seconds_left() > 0,
            "last_contact_age_seconds": round(age, 3) if self._clock.known else None,
        }


def _switches(path: Path | None) -> dict[str, Switch]:
    """The switches of the site; none without a file. Raises CannotStart."""
    try:
        return {} if path is None else read_switches(path)
    except (OSError, ValueError) as error:
        raise CannotStart(f"BERTH_SITE_SWITCHES_FILE: {error}") from error


def _sealing_key(path: Path) -> X25519PrivateKey:
    """The private key to which passwords are sealed: made once, kept on disk. Raises OSError, ValueError."""
    if not path.exists():
        write_durably(path, new_key_pem())
    return read_key(path)
