"""Getting and keeping an identity: enrol once, renew at half-life, enrol again only when the certificate is of no
more use.

A restart with valid credentials asks for nothing. A token is used once: its digest is kept with the credentials it
made, so that a token still lying there from the first enrolment is not mistaken for a new one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import structlog

from berth.process.backoff import Backoff
from node_agent.attestation.tpm import Tpm, TpmFailed
from node_agent.attestation.wire import (
    Attestation,
    AttestationChallenge,
    AttestedCertificateRequest,
    AttestedEnrolRequest,
    EnrolmentChallengeRequest,
    TpmKeys,
)
from node_agent.clock import ServerClock, boot_seconds
from node_agent.connection import (
    CredentialsRefused,
    NodeConnection,
    RequestRefused,
    Unreachable,
    ask_time,
    challenge_enrolment,
    enrol,
)
from node_agent.crash_points import CrashPoint, reach
from node_agent.identity import IdentityStore, StoredIdentity, public_key_sha256, request_pem, token_digest, validity
from node_agent.key_set import KEY_SET_BYTES_MAX, KeySet, KeySetRefused
from node_agent.key_sets import KeySets
from node_agent.pinning import tls_for_token
from node_agent.problems import CannotStart, IdentityLost
from node_agent.protocol import Credentials
from node_agent.settings import Settings

log = structlog.get_logger("node_agent.enrolment")


@dataclass(frozen=True)
class Paths:
    """Where an agent of a kind enrols, renews its certificate, and fetches the key set."""

    enrol: str
    certificate: str
    key_set: str


NODE_PATHS: Final = Paths("/api/v1/nodes/enroll", "/node/v1/certificate", "/node/v1/key-set")
SITE_PATHS: Final = Paths("/api/v1/sites/enroll", "/site/v1/certificate", "/site/v1/key-set")


class Enrolment:
    """The one place that replaces the node's identity."""

    def __init__(
        self,
        settings: Settings,
        store: IdentityStore,
        key_sets: KeySets,
        clock: ServerClock,
        connection: NodeConnection,
        tpm: Tpm | None,
        paths: Paths = NODE_PATHS,
    ) -> None:
        self._paths = paths
        self._settings = settings
        self._store = store
        self._key_sets = key_sets
        self._clock = clock
        self._connection = connection
        self._tpm = tpm
        self._identity: StoredIdentity | None = None

    @property
    def identity(self) -> StoredIdentity:
        """The node's present identity. Call `establish` first."""
        if self._identity is None:
            raise LookupError("this node has no identity yet")
        return self._identity

    @property
    def key_set(self) -> KeySet:
        """The key set in use. Call `require_key_set` first."""
        if self._key_sets.current is None:
            raise LookupError("this node has no key set yet")
        return self._key_sets.current

    async def establish(self) -> None:
        """Take the identity on disk, or enrol. Raises CannotStart."""
        stored = self._store.load()
        if stored is not None:
            await self._take(stored)
            return
        token = self._settings.token()
        if token is None:
            raise CannotStart(
                "this node is not enrolled: set BERTH_ENROLMENT_TOKEN or BERTH_ENROLMENT_TOKEN_FILE to a fresh token"
            )
        await self._enrol(token)

    async def enrol_again(self, why: str) -> None:
        """Replace an identity that is of no more use. Raises IdentityLost if there is no unused token."""
        token = self._settings.token()
        if token is None or token_digest(token) == self.identity.token_sha256:
            raise IdentityLost(
                f"{why}, and there is no unused enrolment token; issue one for this node and set BERTH_ENROLMENT_TOKEN"
            )
        log.warning("enrolling_again", why=why)
        await self._enrol(token)

    async def replace_if_expired(self) -> None:
        """Enrol again if the certificate has ended by the public listener's clock. For the time before the first answer
        of the node listener: TLS refuses an expired certificate, often without saying why. Raises IdentityLost."""
        now = await ask_time(self._settings.api_url, self._settings.api_ca_file)
        if now is not None and now >= validity(self.identity.credentials.certificate_pem).not_after:
            await self.enrol_again("this node's certificate has expired")

    async def renew(self) -> None:
        """Trade the certificate, while it is valid, for its successor with a new key.

        The key is on disk before it is sent: asked again after a lost answer, it must be the same one, because another key
        would be a second claim to this node's identity. Raises the connection's situations.
        """
        private_key_pem = self._store.pending_key()
        attestation = await self._prove(private_key_pem, self._challenge_renewal)
        request = AttestedCertificateRequest(csr_pem=request_pem(private_key_pem), attestation=attestation)
        credentials = await self._connection.post(self._paths.certificate, request, Credentials)
        reach(CrashPoint.RENEWAL_AFTER_ANSWER)
        with suppress(KeySetRefused):  # the certificate is good without it
            self._key_sets.offer(credentials.key_set)
        await self._save(credentials, private_key_pem, self.identity.token_sha256)
        log.info("certificate_renewed", node_id=str(credentials.node_id), epoch=credentials.node_epoch)

    async def fetch_key_set(self) -> None:
        """Take the control plane's key set if it is newer and signed by a pinned root. Raises the connection's situations."""
        content = await self._connection.fetch(self._paths.key_set, KEY_SET_BYTES_MAX + 1)
        with suppress(KeySetRefused):  # logged, counted and reported; the set in use stays
            if self._key_sets.offer(content):
                await self._take(self.identity)

    async def require_key_set(self) -> None:
        """Fetch the first key set of a node that enrolled with an agent of the version before. Raises CannotStart, and the
        connection's situations."""
        if self._key_sets.current is None:
            await self.fetch_key_set()
        if self._key_sets.current is None:
            raise _key_set_refused(str(self._key_sets.refusal))

    def expired(self) -> bool:
        """Whether the certificate has ended, by the server's clock; False while that is unknown."""
        return self._clock.known and self.seconds_left() <= 0

    def seconds_left(self) -> float:
        """Seconds until the certificate expires. Raises LookupError while the server's clock is unknown."""
        return (validity(self.identity.credentials.certificate_pem).not_after - self._clock.now()).total_seconds()

    def seconds_until_renewal(self) -> float:
        """Seconds until half of the certificate's life is over. Raises LookupError as above."""
        return (validity(self.identity.credentials.certificate_pem).renew_at - self._clock.now()).total_seconds()

    async def _enrol(self, token: str) -> None:
        settings = self._settings
        tls = tls_for_token(
            token, settings.api_url, settings.api_ca_file, http_allowed=settings.enrolment_http_allowed
        )  # fmt: skip
        private_key_pem = self._store.pending_key()
        hardware_id = self._store.hardware_id(settings.hardware_id)

        async def ask() -> Credentials:
            attestation = await self._prove(private_key_pem, challenge)
            request = AttestedEnrolRequest(
                token=token, hardware_id=hardware_id, csr_pem=request_pem(private_key_pem), attestation=attestation
            )
            reach(CrashPoint.ENROLMENT_BEFORE_REQUEST)
            asked_at = boot_seconds()
            answer = await enrol(settings.api_url, request, tls, self._paths.enrol)
            self._clock.observe(answer.server_time, boot_seconds() - asked_at)
            return answer

        async def challenge(keys: TpmKeys) -> AttestationChallenge:
            asked = EnrolmentChallengeRequest(token=token, hardware_id=hardware_id, tpm=keys)
            return await challenge_enrolment(settings.api_url, asked, tls)

        credentials = await self._answered(ask)
        reach(CrashPoint.ENROLMENT_AFTER_ANSWER)
        try:
            self._key_sets.offer(credentials.key_set)
        except KeySetRefused as refused:
            raise _key_set_refused(str(refused)) from refused
        await self._save(credentials, private_key_pem, token_digest(token))
        reach(CrashPoint.ENROLMENT_AFTER_STORED)
        log.info("enrolled", node_id=str(credentials.node_id), epoch=credentials.node_epoch)

    async def _prove(
        self, private_key_pem: str, challenge: Callable[[TpmKeys], Awaitable[AttestationChallenge]]
    ) -> Attestation | None:
        """The proof of this node's TPM for a request with this key; None without a TPM, or if none is asked for.

        Raises the connection's situations; `Unreachable` also while the TPM fails.
        """
        if self._tpm is None:
            return None
        try:
            asked = await challenge(await self._tpm.keys())
            if asked.credential is None or asked.encrypted_secret is None:
                return None
            return await self._tpm.answer(asked, public_key_sha256(private_key_pem))
        except (TpmFailed, OSError, ValueError) as error:
            raise Unreachable(f"this node's TPM does not answer: {error}") from error

    async def _challenge_renewal(self, keys: TpmKeys) -> AttestationChallenge:
        return await self._connection.post("/node/v1/certificate/challenge", keys, AttestationChallenge)

    async def _answered(self, ask: Callable[[], Awaitable[Credentials]]) -> Credentials:
        deadline = time.monotonic() + self._settings.agent_startup_seconds
        backoff = Backoff(most_seconds=2.0)
        while True:
            try:
                return await ask()
            except (CredentialsRefused, RequestRefused) as refused:
                raise CannotStart(f"the server refuses to enrol this node: {refused}") from refused
            except Unreachable as error:
                if time.monotonic() >= deadline:
                    waited = f"waited {self._settings.agent_startup_seconds:.0f} s to enrol at {self._settings.api_url}"
                    raise CannotStart(f"{waited}: {error}") from error
                log.info("waiting", for_what="enrolment", why=str(error))
                await asyncio.sleep(backoff.next_seconds())

    async def _save(self, credentials: Credentials, private_key_pem: str, digest: str) -> None:
        identity = StoredIdentity(credentials=credentials, private_key_pem=private_key_pem, token_sha256=digest)
        self._store.save(identity)
        await self._take(identity)

    async def _take(self, identity: StoredIdentity) -> None:
        self._identity = identity
        key_set = self._key_sets.current
        # The enrolled CA counts until the first key set: an agent of the version before stored no other.
        await self._connection.use(identity, key_set.node_cas if key_set else [identity.credentials.ca_pem])


def _key_set_refused(why: str) -> CannotStart:
    return CannotStart(
        f"the control plane's key set is refused ({why}); compare BERTH_ROOT_KEYS_FILE with the root that signed it"
    )
