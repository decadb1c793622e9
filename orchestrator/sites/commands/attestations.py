"""Attestations on demand: requested by operators, answered by the agent of a node or the deploy system of a machine, judged here.

A machine behind a BMC has no agent: a run starts its deploy system, which answers. The worker signs, and judges what has ended.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID, uuid4

from pydantic import ValidationError

from berth.process.json_objects import JsonObject
from node_agent.wire.attestations import AttestationReport
from node_agent.wire.fields import first_error
from node_agent.wire.topology import Topology
from orchestrator.audit import store as audit
from orchestrator.database.transactions import Transaction
from orchestrator.log.events import Event, EventType
from orchestrator.log.store.outbox import append_events
from orchestrator.nodes.attestation import store
from orchestrator.nodes.attestation.documents import attestation_document, attestations_document
from orchestrator.nodes.attestation.rules import (
    MACHINE_RUN_SECONDS_MAX,
    MACHINE_SECONDS_MAX,
    SUSPECT,
    AttestationCode,
    Expected,
    Judgement,
    OnFailure,
    Verdict,
    failed,
    judge,
)
from orchestrator.nodes.attestation.store import NodeFacts, OpenAttestation
from orchestrator.nodes.attestation.structures import read_attestation_key
from orchestrator.nodes.deploy_systems import agentless_store, run_store, task_store
from orchestrator.nodes.deploy_systems.rules import Addresses
from orchestrator.nodes.deploy_systems.run_rules import RunKind, RunOutcome
from orchestrator.nodes.deploy_systems.run_store import RunWork
from orchestrator.nodes.deploy_systems.uses import require_no_run, require_unused
from orchestrator.nodes.firmware.rules import Objection
from orchestrator.nodes.refusals import AttestationUnavailable
from orchestrator.nodes.states import NodeState
from orchestrator.nodes.store import nodes
from orchestrator.nodes.store.attestation import read_tpm
from orchestrator.nodes.store.out_of_service import take_node_out_of_service
from orchestrator.operations.execution import Context, Done, run_once, transact
from orchestrator.operations.store.operations import Answer, Operation
from orchestrator.problems import InvalidState, NotFound
from orchestrator.sites import firmware
from orchestrator.sites.run_orders import RunOrder, insert_ordered, medium_of, require_idle
from orchestrator.sites.store import bmcs
from orchestrator.tasks.states import LIVE_TASK_STATES, TaskState
from orchestrator.tenants.principals import Actor, ActorKind

Compared = tuple[list[tuple[Objection, str]], list[str]]
"""What is wrong with the firmware of a report, and what it was compared with."""
Compare = Callable[[AttestationReport], Awaitable[Compared]]

_ATTESTER = Actor(ActorKind.WORKER, "attestation")


class Advanced(StrEnum):
    """What became of an open attestation."""

    ISSUED = "issued"
    PASSED = "passed"
    FAILED = "failed"
    QUARANTINED = "quarantined"
    """Failed, with the node's slots in quarantine."""


@dataclass(frozen=True, slots=True)
class Answered:
    """What ended: a report with the moment of its arrival, or why there is none. `compared`: beside the accepted PCRs."""

    judged: Judgement
    compared: list[str]
    evidence: bytes | None


async def request_attestation(
    context: Context, operation: Operation, actor: Actor, node_id: UUID, addresses: Callable[[], Addresses]
) -> Answer:
    """200 with the attestation; an open one is the answer. `addresses` is called for a machine without an agent alone.

    Refusals, which change nothing: `NotFound`; `AttestationUnavailable` without a proven TPM, or for an agent of an earlier
    version; `InvalidState` if the agent does not answer, the machine is in service or something works on it; `NodeInUse` while a
    tenant has the machine.
    """

    async def effect(tx: Transaction) -> Done:
        await nodes.lock_node(tx, node_id)
        if await store.read_open(tx, node_id) is None:
            if (await read_tpm(tx, node_id)).ak_public is None:
                raise AttestationUnavailable.without_tpm()
            by = f"{actor.kind.value}:{actor.id}"
            nonce = store.new_nonce()
            if await agentless_store.read_agentless(tx, node_id) is None:
                await _require_agent(tx, node_id)
                await store.insert_request(tx, node_id, nonce, by=by, deploy_run_id=None)
            else:
                run = await _open_run(tx, node_id, nonce, addresses(), by)
                await store.insert_request(
                    tx, node_id, nonce, by=by, deploy_run_id=run, seconds_max=MACHINE_RUN_SECONDS_MAX
                )  # fmt: skip
        (found,) = await store.list_attestations(tx, node_id, 1)
        said = {"attestation_id": str(found.id), "deploy_run": found.deploy_run_id and str(found.deploy_run_id)}
        await audit.record(tx, actor, "node.attest", f"nodes/{node_id}", said, operation.request_id)
        return Done(200, attestation_document(found), found.id)

    return await run_once(context, operation, effect, None)


async def _require_agent(tx: Transaction, node_id: UUID) -> None:
    """Return if the agent of a locked node can answer. Raises `InvalidState`, `AttestationUnavailable`."""
    facts = await store.read_facts(tx, node_id)
    if facts.state in (NodeState.RETIRED, NodeState.REGISTERED):
        raise InvalidState(f"the node is {facts.state}; it has no agent that could answer", state=facts.state)
    if not facts.reachable:
        raise InvalidState("the node is offline; start its agent first", state="offline")
    if not facts.supported:
        raise AttestationUnavailable.by(facts.agent_version)


async def _open_run(tx: Transaction, node_id: UUID, nonce: bytes, addresses: Addresses, by: str) -> UUID:
    """Open the run whose deploy system answers. Raises `NotFound`, `InvalidState`, `NodeInUse`."""
    bmc = await bmcs.lock_bmc(tx, node_id)
    if bmc is None:
        raise NotFound(f"node {node_id} has no BMC: berth node bmc set")
    await require_no_run(tx, node_id)
    await require_unused(tx, node_id, None, writing=False)
    await require_idle(tx, node_id)
    if await run_store.read_newest(tx, node_id) is None:
        raise InvalidState("no run has shown the network of the machine: berth node inspect", state="not_inspected")
    medium = await medium_of(tx, bmc, RunOrder(RunKind.ATTEST, None, None, (), False))
    work = RunWork(RunKind.ATTEST, {"nonce": nonce.hex()}, MACHINE_SECONDS_MAX)
    await insert_ordered(tx, bmc, work, medium, addresses, by)
    run = await run_store.read_open(tx, node_id)
    assert run is not None, "it was opened"
    return run.id


async def accept_attestation(
    context: Context, operation: Operation, actor: Actor, node_id: UUID, attestation_id: UUID
) -> Answer:
    """200 with the node's attestations: later ones are compared with the PCRs that this one has proven, whatever its verdict.

    Refusals: `NotFound`, `InvalidState` if it has proven none.
    """

    async def effect(tx: Transaction) -> Done:
        await nodes.lock_node(tx, node_id)
        found = await store.read_attestation(tx, node_id, attestation_id)
        if found is None:
            raise NotFound(f"node {node_id} has no attestation {attestation_id}")
        if found.pcrs is None:
            raise InvalidState("the attestation has proven no PCRs; attest the node again", state=found.code or "open")
        await store.accept_pcrs(tx, node_id, found.pcrs, found.id, f"{actor.kind.value}:{actor.id}")
        said = {"attestation_id": str(found.id), "pcrs": found.pcrs}
        await audit.record(tx, actor, "node.accept_attestation", f"nodes/{node_id}", said, operation.request_id)
        kept, accepted = await store.list_attestations(tx, node_id), await store.read_accepted(tx, node_id)
        return Done(200, attestations_document(node_id, kept, accepted), node_id)

    return await run_once(context, operation, effect, None)


async def advance_attestation(context: Context, node_id: UUID, on_failure: OnFailure) -> Advanced | None:
    """Sign the task of the node's requested attestation, or judge the one that has ended, evaluated after the node's lock.

    None: there is nothing to do yet. A failed one leaves allocations as they are.
    """

    async def work(tx: Transaction) -> Advanced | None:
        assert context.signer is not None, "only processes with a signing key issue tasks"
        await nodes.lock_node(tx, node_id)
        known = await store.read_open(tx, node_id)
        if known is None:
            return None
        facts = await store.read_facts(tx, node_id)
        if known.deploy_run_id is not None:
            answered = await _of_run(tx, node_id, known, known.deploy_run_id, facts)
        elif known.task_id is not None:
            answered = await _of_task(tx, node_id, known, facts)
        else:
            answered = _never(known, facts)
            if answered is None and facts.reachable:
                await store.issue(tx, context.signer, node_id, known, facts)
                return Advanced.ISSUED
        return None if answered is None else await _end(tx, node_id, known, answered, on_failure)

    return await transact(context, work)


def _without_report(code: AttestationCode, detail: str) -> Answered:
    return Answered(failed(code, detail), [], None)


def _never(known: OpenAttestation, facts: NodeFacts) -> Answered | None:
    """Why the task of a request is not signed any more."""
    if facts.state is NodeState.RETIRED:
        return _without_report(AttestationCode.NODE_RETIRED, "the node is retired")
    if known.waits_until <= facts.clock:
        return _without_report(AttestationCode.NODE_OFFLINE, "the node was not online in time")
    if facts.reachable and not facts.supported:
        detail = f"the node's agent (version {facts.agent_version}) does not attest on demand"
        return _without_report(AttestationCode.UNSUPPORTED, detail)
    return None


async def _of_task(tx: Transaction, node_id: UUID, known: OpenAttestation, facts: NodeFacts) -> Answered | None:
    """What the node's agent has answered; None while its task is under way."""
    if known.task_state in LIVE_TASK_STATES:
        return None
    if known.task_state is TaskState.FAILED:
        return _without_report(AttestationCode.TASK_FAILED, known.task_failure or "the agent reported no reason")
    if known.task_state is not TaskState.COMPLETED:
        state = "gone" if known.task_state is None else known.task_state.value
        return _without_report(AttestationCode.EXPIRED, f"the node did not answer: its task is {state}")
    is_late = known.task_finished_at is not None and known.task_finished_at > known.waits_until
    vendor, product = _model(facts)

    async def compare(report: AttestationReport) -> Compared:
        return await firmware.objected_by_list(tx, vendor, product, report.firmware)

    return await _judged(tx, node_id, known, known.result, compare, is_late=is_late)


def _model(facts: NodeFacts) -> tuple[str | None, str | None]:
    """Vendor and product of the machine, by its topology; None if that is not known."""
    try:
        stated = None if facts.topology is None else Topology.model_validate(facts.topology).firmware
    except ValidationError:  # of another version
        stated = None
    return (None, None) if stated is None else (stated.vendor, stated.product)


async def _of_run(
    tx: Transaction, node_id: UUID, known: OpenAttestation, run_id: UUID, facts: NodeFacts
) -> Answered | None:  # fmt: skip
    """What the deploy system of the run has answered; None while the run is open in time."""
    run = await run_store.read_run(tx, run_id)
    if run is not None and run.outcome is None and known.waits_until > facts.clock:
        return None
    if run is None or run.outcome is None:
        return _without_report(AttestationCode.EXPIRED, "the run of the deploy system did not end in time")
    if run.outcome is not RunOutcome.COMPLETED:
        return _without_report(AttestationCode.RUN_FAILED, run.failure or "the run was stopped")
    _, result = await task_store.read_result(tx, run.deploy_task_id)

    async def compare(report: AttestationReport) -> Compared:
        return await firmware.objected_when_attested(tx, node_id, run.requested_at, report.firmware)

    is_late = run.ended_at is not None and run.ended_at > known.waits_until
    return await _judged(tx, node_id, known, result, compare, is_late=is_late)


async def _judged(
    tx: Transaction, node_id: UUID, known: OpenAttestation, result: JsonObject | None, compare: Compare, *, is_late: bool
) -> Answered:  # fmt: skip
    """The verdict on a report, under the key that is bound to the node now."""
    try:
        report = AttestationReport.model_validate(result)
    except ValidationError as error:
        return _without_report(
            AttestationCode.BAD_REPORT, f"the result is no report of an attestation: {first_error(error)}"
        )
    tpm, accepted = await read_tpm(tx, node_id), await store.read_accepted(tx, node_id)
    key = None if tpm.ak_public is None else read_attestation_key(tpm.ak_public)
    objections, compared = await compare(report)
    judged = judge(
        report, Expected(key, known.nonce, None if accepted is None else accepted.pcrs), objections, is_late=is_late
    )
    return Answered(judged, [*([] if accepted is None else ["pcrs"]), *compared], report.canonical())


async def _end(
    tx: Transaction, node_id: UUID, known: OpenAttestation, answered: Answered, on_failure: OnFailure
) -> Advanced:
    judged = answered.judged
    await store.end(tx, node_id, known.id, judged, answered.compared, answered.evidence)
    ended = {
        "node_id": node_id, "attestation_id": known.id, "verdict": judged.verdict.value,
        "code": judged.code and judged.code.value, "detail": judged.detail,
    }  # fmt: skip
    await append_events(tx, [Event(EventType.NODE_ATTESTATION_ENDED, f"nodes/{node_id}", uuid4(), None, ended)])
    said = {**ended, "node_id": str(node_id), "attestation_id": str(known.id), "compared": answered.compared}
    await audit.record(tx, _ATTESTER, "node.attestation_ended", f"nodes/{node_id}", said, None)
    if judged.verdict is Verdict.PASSED:
        return Advanced.PASSED
    if on_failure is OnFailure.REPORT or judged.code not in SUSPECT:
        return Advanced.FAILED
    await take_node_out_of_service(
        tx, node_id, f"{judged.code}: found by attestation {known.id}", judged.detail, _ATTESTER, "attestation"
    )  # fmt: skip
    return Advanced.QUARANTINED
