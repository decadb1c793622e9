-- Failures: the deadline of a whole provisioning, whatever its attempts wait for; and units blocked until somebody acts.

alter table allocations add column provision_until timestamptz;

create index claims_blocked on claims (node_id) where waits_for in ('operator', 'force_release');
create index claims_held on claims (node_id) where closed_at is null and owner_kind = 'reservation';
