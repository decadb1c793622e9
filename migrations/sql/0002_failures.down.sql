drop index claims_held;
drop index claims_blocked;
alter table allocations drop column provision_until;
