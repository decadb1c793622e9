alter table reservations reset (autovacuum_analyze_scale_factor, autovacuum_analyze_threshold);
alter table claims reset (autovacuum_analyze_scale_factor, autovacuum_analyze_threshold);
drop index claims_held;
drop index claims_open_by_node;
create index claims_open_by_node on claims (node_id) where closed_at is null;
create index claims_held on claims (node_id) where closed_at is null and owner_kind = 'reservation';
alter table reservations reset (autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold);
alter table claims reset (autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold);
drop function live_allocations();
drop index nodes_out_of_service;
alter table allocations drop constraint creation_runs_once, add constraint creation_runs_once unique (tenant_id, operation_key);
alter table reservations drop constraint reservation_runs_once,
    add constraint reservation_runs_once unique (tenant_id, operation_key);
drop index allocations_by_tenant;
drop index reservations_by_state;
drop index reservations_by_tenant;
create index allocations_by_tenant on allocations (tenant_id, id);
create index reservations_by_tenant on reservations (tenant_id, position);
