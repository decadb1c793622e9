"""SQL of console sessions whose machine is served by the agent of its site: signed into the session's row, handed out once."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID, uuid4

from node_agent.protocol import TaskBody, TaskType
from node_agent.wire.console import MachineConsole
from orchestrator.consoles.rules import GRACE_SECONDS
from orchestrator.consoles.store import Unsigned
from orchestrator.database.transactions import Transaction
from orchestrator.sites.store import agents, bmcs
from orchestrator.sites.store.bmc_tasks import Leased
from orchestrator.sites.store.task_parameters import parameters_of
from orchestrator.tasks.signing import TaskSigner
from orchestrator.tasks.store.tasks import NOT_BEFORE_ALLOWANCE_SECONDS

_CONSOLE = "select console_host_key, console_shared from node_bmcs where node_id = :node_id and site_id = :site_id"
_ISSUED = """
update console_sessions set task_id = :task_id, envelope = cast(:envelope as jsonb), waits_for = 'node', waits_since = :clock,
       waits_until = :dial_until
where id = :id
"""
# The lease and the certificate count in the same statement, as for other tasks of sites. A session is handed out once: one whose
# answer is lost ends without an agent. One that was requested before the BMC changed is not leased.
_LEASE = """
with held as (
    select s.id, s.lease_fence from site_agents a join sites s on s.id = a.site_id
    join site_agent_certificates c on c.serial = :serial and c.agent_id = a.id and c.revoked_at is null
        and c.agent_epoch = a.epoch
    where a.id = :agent_id and a.state <> 'retired' and a.identity_conflict_at is null
      and s.lease_agent = a.id and s.lease_run = :run_id and s.lease_fence = :lease_fence and s.lease_until > clock_timestamp()
    for share of s
), picked as (
    select t.id from held h join console_sessions t on t.site_id = h.id
    where t.ended_at is null and t.dispatched_at is null and t.envelope is not null and t.waits_until > clock_timestamp()
      and not exists (select from deploy_runs r where r.node_id = t.node_id and r.ended_at is null)
      and not exists (select from node_bmcs b where b.node_id = t.node_id and b.changed_at > t.opened_at)
      and not exists (select from bmc_tasks b where b.node_id = t.node_id and b.ended_at is null
                      and b.kind not in ('look', 'reseal'))
    order by t.opened_at limit :limit for update of t skip locked
)
update console_sessions t set dispatched_at = clock_timestamp(), lease_fence = h.lease_fence from picked p, held h
where t.id = p.id returning t.task_id, t.envelope
"""
# The agent that connects must hold the lease under which the session was handed out, and the machine must be free still.
_ATTACH = """
update console_sessions c set attached_at = n.now, waits_for = 'end', waits_since = n.now,
       waits_until = n.now + make_interval(secs => c.seconds_max + :grace_seconds)
from (select clock_timestamp() as now) n
where c.id = :id and c.process_id = :process_id and c.ended_at is null and c.attached_at is null
  and exists (select from sites s join node_bmcs b on b.site_id = s.id and b.node_id = c.node_id
              where s.id = c.site_id and s.lease_agent = :agent_id and s.lease_fence = c.lease_fence
                and s.lease_until > clock_timestamp() and b.changed_at <= c.opened_at)
  and not exists (select from deploy_runs r where r.node_id = c.node_id and r.ended_at is null)
  and not exists (select from bmc_tasks b where b.node_id = c.node_id and b.ended_at is null and b.kind not in ('look', 'reseal'))
returning c.id
"""
_RUN_OPEN = """
select exists (select from deploy_runs where node_id = :node_id and ended_at is null)
    or exists (select from bmc_tasks where node_id = :node_id and ended_at is null and kind not in ('look', 'reseal'))
"""


async def is_run_open(tx: Transaction, node_id: UUID) -> bool:
    """Whether a run, or a task that ends sessions, works on the machine of a locked node: none begins before the transaction has
    ended."""
    return bool((await tx.execute(_RUN_OPEN, {"node_id": node_id})).scalar_one())


async def issue(
    tx: Transaction, signer: TaskSigner, node_id: UUID, site_id: UUID, session: Unsigned, dial_seconds: float
) -> bool:
    """Sign the task of a locked session into its row; False if the machine has no console any more."""
    row = (await tx.execute(_CONSOLE, {"node_id": node_id, "site_id": site_id})).first()
    if row is None or row.console_host_key is None:
        return False
    bmc = await bmcs.read_bmc(tx, node_id)
    wanted = await parameters_of(tx, bmc, await agents.sealing_keys(tx, site_id))
    console = MachineConsole(
        attach=session.order(dial_seconds), host_key=row.console_host_key, shared=row.console_shared
    )
    fence: int = (await tx.execute("select nextval('fences')")).scalar_one()
    body = TaskBody(
        task_id=uuid4(), type=TaskType.METAL_CONSOLE, node_id=node_id, node_epoch=session.epoch, allocation_id=None, fence=fence,
        parameters=wanted.model_copy(update={"console": console}).model_dump(mode="json"),
        not_before=session.clock - timedelta(seconds=NOT_BEFORE_ALLOWANCE_SECONDS),
        expires_at=session.clock + timedelta(seconds=session.task_seconds(dial_seconds)), key_id=signer.key_id,
    )  # fmt: skip
    values = {
        "id": session.id, "task_id": body.task_id, "envelope": signer.sign(body).model_dump_json(), "clock": session.clock,
        "dial_until": console.attach.dial_until,
    }  # fmt: skip
    await tx.execute(_ISSUED, values)
    return True


async def lease(
    tx: Transaction, agent_id: UUID, serial: str, run_id: UUID, lease_fence: int, limit: int
) -> list[Leased]:
    """Signed sessions of the agent's site that no agent was handed, oldest first; none if it does not hold this lease."""
    values = {"agent_id": agent_id, "serial": serial, "run_id": run_id, "lease_fence": lease_fence, "limit": limit}
    return [Leased(row.task_id, row.envelope) for row in await tx.execute(_LEASE, values)]


async def note_attached(tx: Transaction, session_id: UUID, agent_id: UUID, process_id: UUID) -> bool:
    """Record that this agent serves the session; False unless it waits for this holder of the lease at this process."""
    values = {"id": session_id, "agent_id": agent_id, "process_id": process_id, "grace_seconds": GRACE_SECONDS}
    return (await tx.execute(_ATTACH, values)).first() is not None
