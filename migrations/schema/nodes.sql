-- The fleet. A node owns a block of consecutive unit numbers, one per slot. Its row stores the fit that placement reads
-- (DESIGN §5): the units that have no booked claim now or later and are not occupied.

create sequence fences as bigint cache 1;
comment on sequence fences is 'Fencing tokens; a greater one supersedes every smaller one on the same units.';
create sequence unit_numbers as bigint cache 1;
comment on sequence unit_numbers is 'Unit numbers of nodes'' slots and of registered resources; never reused.';

create table pools (
    id        integer primary key generated always as identity,
    region    text not null references regions,
    gpu_model text not null,
    shape     text not null check (shape in ('baremetal', 'gpu_slice')),
    constraint pool_unique unique (region, gpu_model, shape)
);
comment on table pools is 'Sets of nodes that serve the same SKUs.';

create domain node_name as text check (value ~ '^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$');
create domain node_slots as smallint check (value between 1 and 62);
create domain node_state as text check (value in ('registered', 'active', 'cordoned', 'draining', 'retired'));

create table nodes (
    id             uuid primary key default uuidv7(),
    name           node_name not null constraint node_name_unique unique,
    pool_id        integer not null references pools,
    region         text not null,
    gpu_model      text not null,
    shape          text not null,
    slot_count     node_slots not null,
    half_slots     node_slots not null,
    unit_base      bigint not null constraint node_units_unique unique,
    state          node_state not null default 'registered',
    online         boolean not null default false,
    free_mask      bigint not null,
    fit_class      smallint not null,
    placement_rank integer not null default (random() * 2147483647)::integer,
    epoch          bigint not null default 0,
    hardware_id    text,
    address        text,
    faults         jsonb not null default '{}',
    enrolled_at    timestamptz,
    last_seen_at   timestamptz,
    agent_version  text,
    held_allocations jsonb,
    created_at     timestamptz not null default clock_timestamp(),
    row_version    bigint not null default 1,
    inventory      jsonb,
    inventory_after timestamptz,
    constraint half_within_node check (half_slots <= slot_count),
    constraint free_mask_within_node check (free_mask >> slot_count = 0),
    constraint inventory_has_time check ((inventory is null) = (inventory_after is null))
) with (fillfactor = 70);
comment on table nodes is 'Machines with GPUs. The row''s lock protects all claims on its units.';
comment on column nodes.half_slots is 'Slots in the first NUMA half; the others are in the second.';
comment on column nodes.unit_base is 'Unit number of slot 0; slot i has unit_base + i.';
comment on column nodes.online is 'Whether the agent was seen recently; an attribute beside the state (docs/decisions/0010).';
comment on column nodes.free_mask is 'Bit i is set if slot i can be promised from now on without an end.';
comment on column nodes.fit_class is 'Free slots in the first half * 64 + free slots in the second half.';
comment on column nodes.placement_rank is 'Random order of nodes within a class, so that concurrent placements spread.';
comment on column nodes.epoch is 'Rises with every enrolment; certificates and tasks of an older epoch are refused.';
comment on column nodes.hardware_id is 'Identity that the hardware reported at enrolment.';
comment on column nodes.faults is 'Fault switches of the sandbox driver (docs/reference/sandbox-driver.md).';
comment on column nodes.held_allocations is 'Allocations that the agent reported last.';
comment on column nodes.inventory is 'Newest complete inventory, [{allocation_id, slots, fence}]; null: none was ever sent.';
comment on column nodes.inventory_after is 'Database time that the agent had received before it gathered the inventory.';
-- Take the first free node of a class: one index probe, as the whole ordering is in the key.
create index nodes_by_fit on nodes (pool_id, fit_class, placement_rank, id) where state = 'active' and online;
-- Read the distinct node layouts of a pool.
create index nodes_by_pool_layout on nodes (pool_id, slot_count, half_slots);
-- Find reservations that cannot start because their node is out of service (find_stranded).
create index nodes_out_of_service on nodes (id) where (state <> 'active' or not online) and state <> 'retired';

create table slots (
    unit       bigint primary key,
    node_id    uuid not null references nodes,
    slot_index smallint not null,
    numa_half  smallint not null check (numa_half in (0, 1)),
    state      text not null default 'in_service' check (state in ('in_service', 'out_of_service')),
    reason     text,
    constraint slot_unique unique (node_id, slot_index)
);
comment on table slots is 'GPU units of nodes.';
comment on column slots.reason is 'Why the slot is out of service, as the operator or the reconciler stated it.';
-- Exclude slots out of service from the free slots of a window (nodes_in_window, pools_in_time).
create index slots_out_of_service on slots (node_id) where state = 'out_of_service';

create table enrolment_tokens (
    id          uuid primary key default uuidv7(),
    node_id     uuid not null references nodes,
    token_hash  bytea not null constraint enrolment_token_unique unique check (octet_length(token_hash) = 32),
    hardware_id text,
    created_by  uuid not null,
    created_at  timestamptz not null default clock_timestamp(),
    expires_at  timestamptz not null,
    used_at     timestamptz
);
comment on table enrolment_tokens is 'One-time tokens with which a node requests its certificate.';
comment on column enrolment_tokens.token_hash is 'SHA-256 of the token.';
comment on column enrolment_tokens.hardware_id is 'Null: the token binds to the hardware that uses it first.';
comment on column enrolment_tokens.created_by is 'API key or principal of the operator.';

create table node_certificates (
    serial     text primary key,
    node_id    uuid not null references nodes,
    node_epoch bigint not null,
    key_sha256 bytea not null check (octet_length(key_sha256) = 32),
    not_before timestamptz not null,
    not_after  timestamptz not null,
    issued_at  timestamptz not null default clock_timestamp(),
    revoked_at timestamptz,
    revoked_reason text
);
comment on table node_certificates is 'Certificates that the issuer signed for nodes.';
comment on column node_certificates.serial is 'Serial number in lower-case hex.';
comment on column node_certificates.key_sha256 is 'Digest of the public key (SPKI).';
-- Certificates of a node: renewal, revocation, the earliest expiry.
create index node_certificates_by_node on node_certificates (node_id);

create table node_orphans (
    id             uuid primary key default uuidv7(),
    node_id        uuid not null references nodes,
    allocation_id  uuid not null,
    slots          smallint[] not null,
    fence          bigint,
    state          text not null default 'reported' check (state in ('reported', 'adopted', 'destroying', 'destroyed')),
    row_version    bigint not null default 1,
    first_seen_at  timestamptz not null default clock_timestamp(),
    last_seen_at   timestamptz not null default clock_timestamp(),
    decided_by     text,
    decided_at     timestamptz,
    reason         text,
    adopted_for    uuid,
    attempts       integer not null default 0,
    failure_code   text,
    failure_detail text,
    destroyed_at   timestamptz,
    proof          jsonb,
    waits_for      text,
    waits_since    timestamptz,
    waits_until    timestamptz,
    constraint orphan_waits_unless_destroyed check ((state = 'destroyed') = (waits_for is null)
                                                    and (waits_for is null) = (waits_since is null)
                                                    and (state <> 'destroying' or waits_until is not null)),
    constraint orphan_destroyed_by_proof check ((state = 'destroyed') = (destroyed_at is not null)
                                                and (state = 'destroyed') = (proof is not null)),
    constraint orphan_decision_is_complete check ((decided_by is null) = (decided_at is null))
);
comment on table node_orphans is 'Guests that a node reports and no record expects; their slots are out of service until they are destroyed.';
comment on column node_orphans.allocation_id is 'As reported; may name no allocation of this database.';
comment on column node_orphans.slots is 'Slot indexes on the node; all slots if the node cannot name them.';
comment on column node_orphans.fence is 'As reported.';
comment on column node_orphans.adopted_for is 'Allocation that the guest belongs to, if it was adopted.';
comment on column node_orphans.attempts is 'Tasks issued to destroy it.';
comment on column node_orphans.proof is 'The node''s report that the guest is gone.';
-- One open record for each guest.
create unique index one_orphan on node_orphans (node_id, allocation_id) where state <> 'destroyed';
-- List the orphans of a node by page.
create index orphans_by_node on node_orphans (node_id, id);
-- Find orphans whose deadline has passed (sweeper).
create index orphans_undecided on node_orphans (waits_until) where state in ('destroying', 'adopted');

create table allocation_absences (
    allocation_id uuid primary key,
    node_id       uuid not null,
    first_missed  timestamptz not null,
    last_missed   timestamptz not null,
    inventories   integer not null default 1 check (inventories > 0),
    reported_at   timestamptz
);
comment on table allocation_absences is 'Active allocations that the complete inventories of their node do not contain.';
comment on column allocation_absences.last_missed is 'inventory_after of the last inventory without it.';
comment on column allocation_absences.inventories is 'Consecutive inventories without it.';
comment on column allocation_absences.reported_at is 'When the absence was reported to operators; null: not yet.';
