-- Named subscriptions of GET /api/v1/notifications (docs/reference/notifications.md).

create table notification_subscriptions (
    scope        uuid not null,
    name         text not null check (length(name) between 1 and 64),
    version      bigint not null check (version >= 0),
    versions_max bigint not null check (versions_max > 0),
    kept_until   timestamptz not null,
    created_at   timestamptz not null default clock_timestamp(),
    updated_at   timestamptz not null default clock_timestamp(),
    constraint notification_subscription primary key (scope, name)
);
comment on table notification_subscriptions is 'Offsets of named subscriptions. Each keeps a bounded part of the log for a bounded time.';
comment on column notification_subscriptions.scope is 'The tenant; the nil UUID: the operators.';
comment on column notification_subscriptions.version is 'Every event up to it is acknowledged.';
comment on column notification_subscriptions.versions_max is 'It keeps at most this many versions of the log below the head.';
comment on column notification_subscriptions.kept_until is 'After this time it keeps nothing; every acknowledgement extends it.';
