"""The BMCs of nodes, for operators. No answer has a password, sealed or not."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_ssh_public_key
from fastapi import APIRouter, Query
from fastapi.responses import Response

from node_agent.wire.sites import BmcTaskKind
from orchestrator.http.answers import json_response
from orchestrator.http.authentication import AdminCaller
from orchestrator.http.fields import Nothing
from orchestrator.http.openapi import PROBLEM_RESPONSES
from orchestrator.http.operation_keys import answer_response
from orchestrator.http.paging import Page, identified_page, page_of
from orchestrator.http.services import Parts
from orchestrator.http.writes import AdminWrite
from orchestrator.problems import Invalid
from orchestrator.sites import queries
from orchestrator.sites.commands.bmcs import NewPassword, put_bmc, remove_bmc, request_bmc_task
from orchestrator.sites.schemas import Bmc, BmcQuery, PutBmc, SealedPassword, SwitchMachine
from orchestrator.sites.store.bmcs import Address
from orchestrator.tenants.required_roles import requires
from orchestrator.tenants.roles import EVERY_OPERATOR, FLEET, NO_TENANT

router = APIRouter(tags=["admin: sites"], responses=PROBLEM_RESPONSES)


@router.get("/bmcs", response_model=Page[Bmc])
@requires(tenant=NO_TENANT, operator=EVERY_OPERATOR)
async def list_all(query: Annotated[BmcQuery, Query()], caller: AdminCaller, parts: Parts) -> Response:
    """BMCs, by node."""
    kind = f"bmcs of {query.site_id}"
    after, limit = identified_page(query, kind)
    found, documents = await queries.list_bmcs(parts.context.database, query.site_id, after, limit)
    page = page_of(found, query.limit, kind, lambda bmc: bmc.node_id)
    return json_response({**page, "items": [documents[bmc.node_id] for bmc in page["items"]]})


@router.get("/nodes/{node_id}/bmc", response_model=Bmc)
@requires(tenant=NO_TENANT, operator=EVERY_OPERATOR)
async def find(node_id: UUID, caller: AdminCaller, parts: Parts) -> Response:
    """The BMC of a node: how it is reached, what was read there last, and its newest task."""
    return json_response(await queries.find_bmc(parts.context.database, node_id))


@router.put("/nodes/{node_id}/bmc", response_model=Bmc)
@requires(tenant=NO_TENANT, operator=FLEET)
async def put(node_id: UUID, body: PutBmc, write: AdminWrite) -> Response:
    """Register the BMC of a node, or change its address, certificate, user or password."""
    address = Address(
        body.site_id, body.url, bytes.fromhex(body.certificate_sha256), body.username, body.system_id,
        body.rotates_at_release, _host_key(body.console_host_key), body.console_shared,
    )  # fmt: skip
    password = None if body.password is None else _password(body.password)
    return answer_response(await put_bmc(write.context, write.operation(body), write.actor, node_id, address, password))


def _host_key(text: str | None) -> str | None:
    """The key as it is stored. Raises `Invalid` for what is no key."""
    try:
        if text:
            load_ssh_public_key(text.encode())
    except (ValueError, UnsupportedAlgorithm) as error:
        message = "is no public key of SSH"
        raise Invalid(
            f"console_host_key: {message}", errors=[{"field": "console_host_key", "message": message}]
        ) from error
    return text


def _password(body: SealedPassword) -> NewPassword:
    copies = {copy.recipient: copy.text for copy in body.copies}
    if len(copies) != len(body.copies):
        message = "names a recipient twice"
        raise Invalid(f"password.copies: {message}", errors=[{"field": "password.copies", "message": message}])
    return NewPassword(body.generation, copies)


@router.delete("/nodes/{node_id}/bmc", status_code=204)
@requires(tenant=NO_TENANT, operator=FLEET)
async def remove(node_id: UUID, write: AdminWrite) -> Response:
    """Forget the BMC of a node, with its sealed passwords."""
    return answer_response(await remove_bmc(write.context, write.operation(), write.actor, node_id))


@router.post("/nodes/{node_id}/bmc/look", response_model=Bmc)
@requires(tenant=NO_TENANT, operator=FLEET)
async def look(node_id: UUID, write: AdminWrite, body: Nothing | None = None) -> Response:
    """Have the site's agent describe the machine by its BMC."""
    return await _request(node_id, write, BmcTaskKind.LOOK)


@router.post("/nodes/{node_id}/bmc/rotate", response_model=Bmc)
@requires(tenant=NO_TENANT, operator=FLEET)
async def rotate(node_id: UUID, write: AdminWrite, body: Nothing | None = None) -> Response:
    """Have the site's agent give the BMC a new password, sealed to every agent of the site and to its recovery key."""
    return await _request(node_id, write, BmcTaskKind.ROTATE)


@router.post("/nodes/{node_id}/bmc/reseal", response_model=Bmc)
@requires(tenant=NO_TENANT, operator=FLEET)
async def reseal(node_id: UUID, write: AdminWrite, body: Nothing | None = None) -> Response:
    """Have the site's agent seal the present password to agents that enrolled later."""
    return await _request(node_id, write, BmcTaskKind.RESEAL)


@router.post("/nodes/{node_id}/bmc/reset", response_model=Bmc)
@requires(tenant=NO_TENANT, operator=FLEET)
async def reset(node_id: UUID, write: AdminWrite, body: Nothing | None = None) -> Response:
    """Have the site's agent restart the BMC, and prove that it is back. The machine's power is not commanded."""
    return await _request(node_id, write, BmcTaskKind.RESET_BMC)


@router.post("/nodes/{node_id}/bmc/power", response_model=Bmc)
@requires(tenant=NO_TENANT, operator=FLEET)
async def power(node_id: UUID, body: SwitchMachine, write: AdminWrite) -> Response:
    """Have the site's agent switch the machine, and read the power state back. Refused while something works on the machine."""
    kind = BmcTaskKind(f"power_{body.verb}")
    return answer_response(await request_bmc_task(write.context, write.operation(body), write.actor, node_id, kind))


async def _request(node_id: UUID, write: AdminWrite, kind: BmcTaskKind) -> Response:
    return answer_response(await request_bmc_task(write.context, write.operation(), write.actor, node_id, kind))
