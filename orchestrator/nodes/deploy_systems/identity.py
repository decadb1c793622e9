"""Which deploy system calls: read from its verified certificate, checked against the database on each call."""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass
from typing import Annotated, Final

from fastapi import Depends, Request

from orchestrator.http.asgi import State
from orchestrator.http.query_parameters import refuse_unknown_parameters
from orchestrator.http.services import Parts
from orchestrator.nodes.certificates import deploy_uri, node_uri
from orchestrator.nodes.deploy_systems.queries import require_deploy_standing
from orchestrator.nodes.deploy_systems.store import DeployStanding
from orchestrator.problems import Unauthenticated

DEPLOY_PATHS: Final = "/deploy/"
"""Prefix of the paths of deploy systems on the node listener."""
PEER: Final = "peer"
DEPLOY_CHAIN: Final = "deploy_chain"
"""Members of a request's state: the verified certificate, and whether the CA of deploy systems has signed it."""
_OTHER_CHAIN: Final = "this certificate is of another kind than this path is for"
_URI: Final = re.compile(r"(?P<node>.+/node/(?P<id>[0-9a-f-]{36}))/deploy/(?P<epoch>[1-9][0-9]{0,18})")


@dataclass(frozen=True, slots=True)
class DeployIdentity:
    """The identity in a verified certificate of a deploy system."""

    node_id: uuid.UUID
    deploy_epoch: int
    serial: str

    @property
    def principal(self) -> uuid.UUID:
        """By which its requests are counted, apart from those of its node."""
        return uuid.uuid5(self.node_id, f"deploy/{self.deploy_epoch}")


def require_chain(path: str, state: State) -> None:
    """Require that a certificate of the deploy chain asks for a path of deploy systems, and one of a node for another.

    The chain decides, not the name: the holder of one CA's key cannot make identities of the other. Raises `Unauthenticated`.
    """
    if path.startswith(DEPLOY_PATHS) != bool(state.get(DEPLOY_CHAIN)):
        raise Unauthenticated(_OTHER_CHAIN)


def deploy_identity(state: State, trust_domain: str) -> DeployIdentity:
    """The identity of the verified peer. Raises `Unauthenticated` unless its one URI names a deploy system of ours."""
    peer = state.get(PEER)
    names = [name for kind, name in (peer or {}).get("subjectAltName", ()) if kind == "URI"]
    found = _URI.fullmatch(names[0]) if len(names) == 1 else None
    if not peer or found is None or not state.get(DEPLOY_CHAIN):
        raise Unauthenticated("a deploy system authenticates with the certificate of its enrolment")
    try:
        node_id, deploy_epoch = uuid.UUID(found["id"]), int(found["epoch"])
        serial = format(int(peer["serialNumber"], 16), "x")
    except (ValueError, KeyError) as error:
        raise Unauthenticated("the certificate names no deploy system of this trust domain") from error
    own = found["node"] == node_uri(trust_domain, node_id)
    if not own or names[0] != deploy_uri(trust_domain, node_id, deploy_epoch) or deploy_epoch >= 2**63:
        raise Unauthenticated("the certificate names no deploy system of this trust domain")
    return DeployIdentity(node_id, deploy_epoch, serial)


@dataclass(frozen=True, slots=True)
class CallingDeploySystem:
    """A deploy system whose permission counted when the request came in. `serial` is lower-case hex."""

    standing: DeployStanding
    serial: str


async def calling_deploy_system(request: Request, parts: Parts) -> CallingDeploySystem:
    """The caller; `Unauthenticated`, `DeploySystemEnded`; then `Invalid` for a query parameter that the path does not know."""
    identity = deploy_identity(request.scope.get("state", {}), parts.settings.trust_domain)
    standing = await require_deploy_standing(
        parts.context.database, identity.node_id, identity.deploy_epoch, identity.serial
    )
    refuse_unknown_parameters(request)
    return CallingDeploySystem(standing, identity.serial)


DeployCaller = Annotated[CallingDeploySystem, Depends(calling_deploy_system)]
