-- Tenants, their quotas, API keys and SSH keys. Rows are retired, never deleted, so hot tables carry no foreign keys to
-- tenants: a key-share lock on one tenant's row by every create costs more than it protects (docs/decisions/0002).

create table tenants (
    id          uuid primary key default uuidv7(),
    name        text not null constraint tenant_name_unique unique check (length(name) between 1 and 100),
    state       text not null default 'active' check (state in ('active', 'suspended')),
    created_at  timestamptz not null default clock_timestamp(),
    row_version bigint not null default 1,
    depleted_at timestamptz
);
comment on table tenants is 'Customers of the cloud; every object of a tenant carries its id.';
comment on column tenants.row_version is 'Rises by one with every change of the row.';
comment on column tenants.depleted_at is 'When the prepaid balance was used up; while set, the tenant starts nothing new.';

create table tenant_quotas (
    tenant_id   uuid primary key references tenants,
    gpus_limit  integer check (gpus_limit >= 0),
    gpus_used   integer not null default 0 constraint gpus_used_not_negative check (gpus_used >= 0),
    row_version bigint not null default 1
) with (fillfactor = 50);
comment on table tenant_quotas is 'GPUs that a tenant may hold and holds; the last row that a transaction locks.';
comment on column tenant_quotas.gpus_limit is 'Null: no limit.';
comment on column tenant_quotas.gpus_used is 'GPUs of live allocations and of holds and confirmed reservations.';

create table api_keys (
    id          uuid primary key default uuidv7(),
    tenant_id   uuid references tenants,
    role        text not null check (role in ('tenant', 'admin')),
    name        text not null check (length(name) between 1 and 100),
    prefix      text not null,
    secret_hash bytea not null constraint api_key_hash_unique unique check (octet_length(secret_hash) = 32),
    created_at  timestamptz not null default clock_timestamp(),
    revoked_at  timestamptz,
    constraint api_key_role_has_scope check ((role = 'tenant') = (tenant_id is not null))
);
comment on table api_keys is 'API keys; the secret itself is stored nowhere.';
comment on column api_keys.tenant_id is 'Null for keys of operators.';
comment on column api_keys.prefix is 'First characters of the key, shown in lists.';
comment on column api_keys.secret_hash is 'SHA-256 of the secret.';
-- List the keys of a tenant by page.
create index api_keys_by_tenant on api_keys (tenant_id, id);

create table ssh_keys (
    id          uuid primary key default uuidv7(),
    tenant_id   uuid not null references tenants,
    name        text not null check (length(name) between 1 and 100),
    public_key  text not null check (length(public_key) <= 16384),
    fingerprint text not null,
    created_at  timestamptz not null default clock_timestamp(),
    constraint ssh_key_name_unique unique (tenant_id, name),
    constraint ssh_key_fingerprint_unique unique (tenant_id, fingerprint)
);
comment on table ssh_keys is 'Public keys that a tenant installs on its allocations.';
comment on column ssh_keys.fingerprint is 'SHA-256 fingerprint in the form of ssh-keygen -l.';
-- Ids of the keys that an allocation was created with (ssh_key_ids_of).
create index ssh_keys_by_public_key on ssh_keys using hash (public_key);
