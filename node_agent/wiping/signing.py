"""Signs the statement of a completed release with the key of the node's certificate."""

from __future__ import annotations

import structlog
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from pydantic import ValidationError

from node_agent.clock import ServerClock
from node_agent.identity import IdentityStore
from node_agent.protocol import ReleaseResult, TaskBody
from node_agent.wiping.build import agent_build
from node_agent.wiping.devices import DeviceWipe
from node_agent.wiping.statement import WipePredicate, lowest_level, make_statement, sign_statement, verdict_of

log = structlog.get_logger("node_agent.wiping")


class StatementSigner:
    """Makes and signs statements. It reads the identity anew each time: it may have been renewed."""

    def __init__(self, store: IdentityStore, clock: ServerClock, driver: str) -> None:
        self._store = store
        self._clock = clock
        self._driver = driver

    def signed(self, body: TaskBody, result: ReleaseResult) -> ReleaseResult:
        """The result of a proven release, with its statement; without one if the node has no usable identity or time.

        A release without a statement frees its units all the same: the allocation then has no wipe certificate.
        """
        identity = self._store.load()
        if identity is None or not self._clock.known or body.allocation_id is None:
            log.error("wipe_statement_not_signed", task_id=str(body.task_id), why="the node has no identity or no time")
            return result
        try:
            devices = [DeviceWipe.model_validate(device) for device in result.evidence.get("devices", [])]
            predicate = WipePredicate(
                allocation_id=body.allocation_id, node_id=body.node_id, node_epoch=body.node_epoch, task_id=body.task_id,
                fence=body.fence, driver=self._driver, agent=agent_build(), ended_at=self._clock.now(),
                hard_stopped=result.hard_stopped, devices=devices, level=lowest_level(devices),
                verdict=verdict_of(devices),
            )  # fmt: skip
            statement = make_statement(predicate, result.evidence)
        except (ValidationError, ValueError) as error:  # a driver's evidence that no statement can carry
            log.error("wipe_statement_not_signed", task_id=str(body.task_id), why=str(error)[:500])
            return result
        key = load_pem_private_key(identity.private_key_pem.encode(), password=None)
        assert isinstance(key, Ed25519PrivateKey | ec.EllipticCurvePrivateKey), "the agent made its key"
        envelope = sign_statement(statement, key, identity.credentials.certificate_pem)
        return result.model_copy(update={"wipe_statement": envelope.model_dump(mode="json")})
