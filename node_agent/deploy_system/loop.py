"""The life of a deploy system: read the medium, prove the machine, enrol, say hello, perform its tasks, end.

Nothing is written to a disk. A second start with the same medium is refused by the control plane, because the key of the first
one is gone: the deploy system says so once and ends. It ends with status 0 when a task orders to power off or its certificate
ends, and init powers the machine off. After a rescue it ends by the hand-over: once the control plane refuses its certificate
for that reason, and the configuration of the medium is deleted, init starts the SSH server of the tenant.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final, TypeVar
from uuid import UUID

import structlog

from berth.process.backoff import Backoff
from node_agent.attestation.tpm import Tpm, TpmFailed
from node_agent.attestation.wire import Attestation, AttestationChallenge
from node_agent.clock import ServerClock, boot_seconds
from node_agent.connection import CredentialsRefused, RequestRefused, Unreachable
from node_agent.deploy_system.admission import Admitted, Refused, Trust, Untrusted, admit
from node_agent.deploy_system.connection import DeployConnection, HandedOver, client_context, server_context
from node_agent.deploy_system.effects.contract import Host, Interrupted
from node_agent.deploy_system.machine import read_hello, read_machine
from node_agent.deploy_system.performing import Work, failed, perform
from node_agent.deploy_system.problems import DeployEnded
from node_agent.deploy_system.signing import MachineSigner
from node_agent.identity import new_key_pem, public_key_sha256, request_pem
from node_agent.key_set import KeySet, KeySetEnvelope, KeySetRefused, open_key_set, read_public_keys, root_keys
from node_agent.protocol import ResultAnswer, TaskType, WaitAnswer
from node_agent.wire.deploy_enrolment import (
    DeployChallengeRequest,
    DeployCredentials,
    DeployEnrolRequest,
    DeployHelloAnswer,
    DeployResultReport,
    MachineProof,
)
from node_agent.wire.deploy_medium import MEDIUM_BYTES_MAX, DeployMedium, MediumInvalid, MediumNetwork, read_medium
from node_agent.wire.deploy_tasks import DeployFailureCode

log = structlog.get_logger("deploy_system")

RETRY_SECONDS_MAX: Final = 5.0
ENDING_SECONDS: Final = 2.0
"""Before its end a certificate may be refused as over: clocks differ."""
ENROL_PATH: Final = "/api/v1/deploy-systems/enroll"

HAND_OVER_SECONDS: Final = 1.0
"""How long one request waits that asks whether the control plane has handed the machine over."""

Answer = TypeVar("Answer")


class Ending(StrEnum):
    """What init is to do with the machine."""

    POWER_OFF = "power_off"
    HAND_OVER = "hand_over"
    """Start the SSH server of the tenant: this deploy system may not act any more."""


@dataclass(frozen=True)
class DeploySettings:
    """What a deploy system is started with. `tpm_tcti`: None on a machine without a TPM."""

    medium: Path
    root_keys_file: Path
    host: Host
    bring_up: Callable[[Host, MediumNetwork], object]
    work: Callable[[str], Mapping[TaskType, Work]]
    tpm_tcti: str | None = None
    version: str = "unknown"
    give_up_seconds: float = 600.0
    """Without an answer of the control plane before the enrolment."""
    wait_seconds: float = 20.0
    """How long the control plane may hold a request for tasks."""


@dataclass
class DeploySystem:
    """One start of a deploy system. Construct it in a running event loop; `run` returns what is to be done with it."""

    settings: DeploySettings
    clock: ServerClock = field(default_factory=ServerClock)
    newest_fence: int = 0
    performed: list[UUID] = field(default_factory=list)
    signer: MachineSigner | None = None
    """Known once it is enrolled."""

    async def run(self) -> Ending:
        """Serve until the end. Raises DeployEnded with one sentence that names the reason."""
        medium = self._read_medium()
        machine = read_machine(self.settings.host.sys)
        await asyncio.to_thread(self.settings.bring_up, self.settings.host, medium.network)
        key_pem = new_key_pem()
        credentials = await self._enrol(medium, machine, key_pem)
        key_set = self._key_set(medium, credentials)
        if (credentials.node_id, credentials.deploy_epoch) != (medium.node_id, medium.deploy_epoch):
            raise DeployEnded("the certificate is of another node or deploy epoch than the medium")
        context = client_context(key_set.node_cas, credentials.certificate_pem, key_pem)
        connection = DeployConnection(medium.node_api_url, context, self.clock)
        trust = Trust(medium.node_id, medium.deploy_epoch, key_set)
        work = self.settings.work(medium.ca_pem)
        self.signer = MachineSigner(key_pem, credentials.certificate_pem, self.clock)
        seconds = (credentials.ends_at - self.clock.now()).total_seconds()
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                return await self._serve(connection, trust, work)
        except TimeoutError:
            log.warning("certificate_ended", node_id=str(medium.node_id), deploy_epoch=medium.deploy_epoch)
        except DeployEnded:
            # The server's clock is a little ahead of ours: it says first that the certificate is over.
            if (credentials.ends_at - self.clock.now()).total_seconds() > ENDING_SECONDS:
                raise
            log.warning("certificate_ended", node_id=str(medium.node_id), deploy_epoch=medium.deploy_epoch)
        finally:
            self.settings.host.stopped.set()
        return Ending.POWER_OFF

    def _read_medium(self) -> DeployMedium:
        try:
            with self.settings.medium.open("rb") as file:
                return read_medium(file.read(MEDIUM_BYTES_MAX + 1))
        except (OSError, MediumInvalid) as error:
            raise DeployEnded(f"the medium cannot be used: {error}") from error

    def _key_set(self, medium: DeployMedium, credentials: DeployCredentials) -> KeySet:
        """The key set of the credentials, if a root of this deploy system has signed it. Raises DeployEnded."""
        try:
            roots = root_keys(read_public_keys(self.settings.root_keys_file))
            found = open_key_set(KeySetEnvelope.model_validate(credentials.key_set), roots)
        except (KeySetRefused, ValueError, OSError) as error:
            raise DeployEnded(
                f"the control plane's key set is refused ({error}); compare {self.settings.root_keys_file} of the deploy"
                " system with the root that signed it"
            ) from error
        if found.serial < medium.key_set_serial:
            raise DeployEnded(f"the key set has serial {found.serial}; the medium requires {medium.key_set_serial}")
        return found

    async def _enrol(self, medium: DeployMedium, machine: MachineProof, key_pem: str) -> DeployCredentials:
        """The certificate. The same key asks again after a lost answer. Raises DeployEnded."""
        connection = DeployConnection(medium.api_url, server_context([medium.ca_pem]), self.clock)

        async def ask() -> DeployCredentials:
            proof = await self._prove(connection, medium, machine, key_pem)
            request = DeployEnrolRequest(
                token=medium.token, deploy_epoch=medium.deploy_epoch, machine=machine, csr_pem=request_pem(key_pem),
                attestation=proof,
            )  # fmt: skip
            return await connection.post(ENROL_PATH, request, DeployCredentials)

        try:
            return await self._answered(ask, "enrolment")
        except (CredentialsRefused, RequestRefused) as refused:
            raise DeployEnded(
                f"the control plane refuses this deploy system, and nothing was done: {refused}"
            ) from refused

    async def _prove(
        self, connection: DeployConnection, medium: DeployMedium, machine: MachineProof, key_pem: str
    ) -> Attestation | None:
        """The proof of this machine's TPM; None without one, or if none is asked for. Raises the connection's situations."""
        if self.settings.tpm_tcti is None:
            return None
        tpm = Tpm(self.settings.tpm_tcti, self.settings.host.scratch, ends_lockout=True)
        try:
            asked = DeployChallengeRequest(
                token=medium.token, deploy_epoch=medium.deploy_epoch, machine=machine, tpm=await tpm.keys()
            )
            challenge = await connection.post(f"{ENROL_PATH}/challenge", asked, AttestationChallenge)
            if challenge.credential is None or challenge.encrypted_secret is None:
                return None
            return await tpm.answer(challenge, public_key_sha256(key_pem))
        except (TpmFailed, OSError, ValueError) as error:
            raise Unreachable(f"this machine's TPM does not answer: {error}") from error

    async def _answered(self, ask: Callable[[], Awaitable[Answer]], what: str) -> Answer:
        deadline = boot_seconds() + self.settings.give_up_seconds
        backoff = Backoff(most_seconds=RETRY_SECONDS_MAX)
        while True:
            try:
                return await ask()
            except Unreachable as error:
                if boot_seconds() >= deadline:
                    raise DeployEnded(f"no {what} in {self.settings.give_up_seconds:.0f} s: {error}") from error
                log.info("waiting", for_what=what, why=str(error))
                await asyncio.sleep(backoff.next_seconds())

    async def _serve(self, connection: DeployConnection, trust: Trust, work: Mapping[TaskType, Work]) -> Ending:
        hello = read_hello(self.settings.version, self.settings.host.sys, self.settings.host.proc)
        try:
            await self._until_answered(lambda: connection.post("/deploy/v1/hello", hello, DeployHelloAnswer))
            log.info("started", node_id=str(trust.node_id), deploy_epoch=trust.deploy_epoch)
            ending = None
            while ending is None:
                ending = await self._next_task(connection, trust, work)
            if ending is Ending.HAND_OVER:
                await self._handed_over(connection)
        except (CredentialsRefused, RequestRefused) as refused:
            raise DeployEnded(f"this deploy system may not act any more: {refused}") from refused
        log.info("ending", node_id=str(trust.node_id), ending=ending.value)
        return ending

    async def _handed_over(self, connection: DeployConnection) -> None:
        """Return once the control plane refuses our certificate by the hand-over, and the token is deleted. Any other refusal
        is raised."""
        params = [
            ("timeout_seconds", str(HAND_OVER_SECONDS)),
            *(("known", str(task)) for task in self.performed[-100:]),
        ]
        try:
            while True:
                await self._until_answered(
                    lambda: connection.get("/deploy/v1/tasks/wait", params, WaitAnswer, HAND_OVER_SECONDS)
                )
                await asyncio.sleep(HAND_OVER_SECONDS)
        except HandedOver:
            self.settings.medium.unlink()

    async def _next_task(
        self, connection: DeployConnection, trust: Trust, work: Mapping[TaskType, Work]
    ) -> Ending | None:
        """Wait for tasks and perform them; what is to be done with the machine after the last one. Raises the refusals of the
        connection."""
        seconds = self.settings.wait_seconds
        params = [("timeout_seconds", str(seconds)), *(("known", str(task)) for task in self.performed[-100:])]
        answer = await self._until_answered(
            lambda: connection.get("/deploy/v1/tasks/wait", params, WaitAnswer, seconds)
        )
        for handed in answer.tasks:
            judged = admit(handed, trust, self.newest_fence, self.clock)
            self.performed.append(handed.task_id)
            if isinstance(judged, Untrusted):
                log.error("task_untrusted", task=str(handed.task_id), reason=judged.reason)
                continue
            report = await self._report_of(judged, work)
            then = judged.parameters.then if isinstance(judged, Admitted) else "wait"
            hands_over = report.outcome == "completed" and then == "hand_over"
            # The answer to the report may be lost: that the machine was handed over since shows that it was received.
            with suppress(HandedOver) if hands_over else nullcontext():
                await self._until_answered(
                    lambda path=handed.task_id, report=report: connection.post(  # type: ignore[misc]
                        f"/deploy/v1/tasks/{path}/result", report, ResultAnswer
                    )
                )
            log.info("reported", task=str(handed.task_id), outcome=report.outcome)
            if then != "wait":
                return Ending.HAND_OVER if hands_over else Ending.POWER_OFF
        return None

    async def _report_of(self, judged: Admitted | Refused, work: Mapping[TaskType, Work]) -> DeployResultReport:
        if isinstance(judged, Refused):
            log.error("task_refused", task=str(judged.body.task_id), why=judged.detail)
            return failed(judged.body.fence, DeployFailureCode.TASK_REFUSED, judged.detail)
        self.newest_fence = judged.body.fence
        try:
            report = await perform(self.settings.host, work, judged)
        except Interrupted as error:
            raise DeployEnded("the task was interrupted") from error
        assert self.signer is not None, "tasks come after the enrolment"
        return self.signer.signed(judged, report)

    async def _until_answered(self, ask: Callable[[], Awaitable[Answer]]) -> Answer:
        """Ask until there is an answer; the end of the certificate ends it."""
        backoff = Backoff(most_seconds=RETRY_SECONDS_MAX)
        while True:
            try:
                return await ask()
            except Unreachable as error:
                log.info("waiting", for_what="control plane", why=str(error))
                await asyncio.sleep(backoff.next_seconds())
