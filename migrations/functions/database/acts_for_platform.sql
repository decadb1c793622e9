-- Whether the transaction acts for an operator or the platform, on rows of any tenant (migrations/policies.sql).
create or replace function acts_for_platform() returns boolean language sql stable parallel safe as $$
    select coalesce(current_setting('berth.tenants', true) = '*', false)
$$;
