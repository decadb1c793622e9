-- The tenants that the transaction has named (`berth.tenants`), for migrations/policies.sql; null, which no row matches, where it
-- has named none, or all (`acts_for_platform`). After a transaction the setting is an empty string.
create or replace function acting_tenants() returns uuid[] language sql stable parallel safe as $$
    select nullif(nullif(current_setting('berth.tenants', true), ''), '*')::uuid[]
$$;
