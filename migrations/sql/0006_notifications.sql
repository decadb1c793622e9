-- Named subscriptions of GET /api/v1/notifications: how far each is done (docs/notifications.md).
--
-- Each holds the log behind its position, within bounds of its own: at most the newest `versions_max` versions, and no
-- longer than until `kept_until`, which every acknowledgement moves on. So one that was forgotten holds nothing for ever.

create table notification_subscriptions (
    scope        uuid not null,                              -- the tenant; the nil UUID: the operators
    name         text not null check (length(name) between 1 and 64),
    version      bigint not null check (version >= 0),       -- everything up to it is acknowledged
    versions_max bigint not null check (versions_max > 0),
    kept_until   timestamptz not null,
    created_at   timestamptz not null default clock_timestamp(),
    updated_at   timestamptz not null default clock_timestamp(),
    constraint notification_subscription primary key (scope, name)
);

-- As the view stands, and this part.
do $$ begin
    execute 'create or replace view log_cursors (kind, name, tenant_id, needs_from, since) as '
        || rtrim(pg_get_viewdef('log_cursors'::regclass), E'; \n') || $part$
union all
select 'subscription', s.name, nullif(s.scope, '00000000-0000-0000-0000-000000000000'),
       greatest(1, s.version + 1, h.version - s.versions_max), s.updated_at
from notification_subscriptions s cross join log_head h where s.kept_until > clock_timestamp()$part$;
end $$;
