-- What has ended stays in the tables for a while, and nothing but lists of it may pay for it.

-- The conditions are always true, and said by the list alone that an index is for. So no other statement is planned over it,
-- whatever is known of the tables: as long as they are empty, or nothing is known of them, every index looks like any other,
-- and a plan made then lasts as long as its session (docs/performance.md).
drop index reservations_by_tenant;
drop index allocations_by_tenant;
create index reservations_by_tenant on reservations (tenant_id, position) where position > 0;
create index reservations_by_state on reservations (tenant_id, state, position) where row_version > 0;
create index allocations_by_tenant on allocations (tenant_id, id) where id > '00000000-0000-0000-0000-000000000000';

-- For the same reason nothing else begins with the tenant.
alter table reservations drop constraint reservation_runs_once,
    add constraint reservation_runs_once unique (operation_key, tenant_id);
alter table allocations drop constraint creation_runs_once,
    add constraint creation_runs_once unique (operation_key, tenant_id);

-- Nodes that keep reservations from being used (`find_stranded`).
create index nodes_out_of_service on nodes (id) where (state <> 'active' or not online) and state <> 'retired';

-- How many live allocations are in each state, and since when the one that has waited longest does. With whole tables out of
-- the question: one of which nothing is known looks as if all of its rows were live.
create function live_allocations() returns table (state text, found bigint, waits_since timestamptz)
language sql stable set enable_seqscan = off
begin atomic
    select a.state, count(*), min(a.waits_since) from allocations a where a.state not in ('released', 'failed') group by a.state;
end;

-- What has ended leaves dead entries in the indexes of what is live. They are swept by how many there are, not by how many
-- rows the table has: a fifth of a million is a long way for a look at one node's claims.
alter table claims set (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000);
alter table reservations set (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000);

-- As long as nobody has a right to anything, or nothing else was seen when the table was last analysed, an index of open claims
-- looks like one row, and like a way to any question about open claims. These are for questions about nodes alone.
drop index claims_open_by_node;
drop index claims_held;
create index claims_open_by_node on claims (node_id) where closed_at is null and node_id is not null;
create index claims_held on claims (node_id) where closed_at is null and owner_kind = 'reservation' and node_id is not null;

-- And what is known of them is not older than a few thousand changes: a tenth of a million rows is more than ever lives.
alter table claims set (autovacuum_analyze_scale_factor = 0.002, autovacuum_analyze_threshold = 1000);
alter table reservations set (autovacuum_analyze_scale_factor = 0.002, autovacuum_analyze_threshold = 1000);
