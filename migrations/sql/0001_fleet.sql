-- The fleet. A node owns a block of consecutive unit numbers, one per slot; its row carries the materialised fit that
-- placement reads (DESIGN §5): which units have no booked claim now or later and are not occupied.

create sequence fences as bigint cache 1;
create sequence unit_numbers as bigint cache 1;

create table pools (
    id        integer primary key generated always as identity,
    region    text not null references regions,
    gpu_model text not null,
    shape     text not null check (shape in ('baremetal', 'gpu_slice')),
    constraint pool_unique unique (region, gpu_model, shape)
);

create table nodes (
    id             uuid primary key default uuidv7(),
    name           text not null constraint node_name_unique unique check (name ~ '^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$'),
    pool_id        integer not null references pools,
    region         text not null,
    gpu_model      text not null,
    shape          text not null,
    slot_count     smallint not null check (slot_count between 1 and 62),
    half_slots     smallint not null check (half_slots between 1 and 62),    -- slots in the first NUMA half
    unit_base      bigint not null constraint node_units_unique unique,
    state          text not null default 'registered'
                   check (state in ('registered', 'active', 'cordoned', 'draining', 'retired')),
    online         boolean not null default false,
    free_mask      bigint not null,                         -- bit i: slot i can be promised from now on, open-ended
    fit_class      smallint not null,                       -- free slots in half 0 * 64 + free slots in half 1
    placement_rank integer not null default (random() * 2147483647)::integer,
    epoch          bigint not null default 0,               -- grows with every enrolment
    hardware_id    text,
    address        text not null default '127.0.0.1',
    faults         jsonb not null default '{}',             -- the sandbox driver's documented switches
    enrolled_at    timestamptz,
    last_seen_at   timestamptz,
    agent_version  text,
    held_allocations jsonb,                                 -- the agent's own inventory, as last reported
    created_at     timestamptz not null default clock_timestamp(),
    row_version    bigint not null default 1,
    constraint half_within_node check (half_slots <= slot_count),
    constraint free_mask_within_node check (free_mask >= 0 and free_mask < (1::bigint << slot_count))
) with (fillfactor = 70);

-- The whole ordering, id included, so that "first free node of a class" is one index probe (TRAPS).
create index nodes_by_fit on nodes (pool_id, fit_class, placement_rank, id) where state = 'active' and online;
create index nodes_by_pool_layout on nodes (pool_id, slot_count, half_slots);

create table slots (
    unit       bigint primary key,
    node_id    uuid not null references nodes,
    slot_index smallint not null,
    numa_half  smallint not null check (numa_half in (0, 1)),
    state      text not null default 'in_service' check (state in ('in_service', 'out_of_service')),
    reason     text,
    constraint slot_unique unique (node_id, slot_index)
);

create table enrolment_tokens (
    id          uuid primary key default uuidv7(),
    node_id     uuid not null references nodes,
    token_hash  bytea not null constraint enrolment_token_unique unique check (octet_length(token_hash) = 32),
    hardware_id text,                                       -- null: bound to whichever hardware uses it first
    created_by  uuid not null,
    created_at  timestamptz not null default clock_timestamp(),
    expires_at  timestamptz not null,
    used_at     timestamptz
);

create table node_certificates (
    serial     text primary key,                            -- lower-case hex
    node_id    uuid not null references nodes,
    node_epoch bigint not null,
    key_sha256 bytea not null check (octet_length(key_sha256) = 32),
    not_before timestamptz not null,
    not_after  timestamptz not null,
    issued_at  timestamptz not null default clock_timestamp(),
    revoked_at timestamptz,
    revoked_reason text
);
create index node_certificates_by_node on node_certificates (node_id);
