-- Who may ask, and for what. Rows here are retired, never deleted, so the hot tables below carry no foreign keys to
-- them: a key-share lock on one tenant's row by every create would cost more than it protects (docs/decisions/0002).

create table tenants (
    id          uuid primary key default uuidv7(),
    name        text not null constraint tenant_name_unique unique check (length(name) between 1 and 100),
    state       text not null default 'active' check (state in ('active', 'suspended')),
    created_at  timestamptz not null default clock_timestamp(),
    row_version bigint not null default 1
);

create table tenant_quotas (
    tenant_id   uuid primary key references tenants,
    gpus_limit  integer check (gpus_limit >= 0),           -- null: no limit
    gpus_used   integer not null default 0 constraint gpus_used_not_negative check (gpus_used >= 0),
    row_version bigint not null default 1
) with (fillfactor = 50);

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

create table regions (
    name         text primary key check (name ~ '^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$'),
    display_name text not null,
    created_at   timestamptz not null default clock_timestamp()
);

create table images (
    name        text primary key check (length(name) between 1 and 100),
    url         text not null check (length(url) <= 2000),
    sha256      text not null check (sha256 ~ '^[0-9a-f]{64}$'),
    shapes      text[] not null check (shapes <@ array['baremetal', 'gpu_slice'] and cardinality(shapes) > 0),
    gpu_models  text[],                                    -- null: any
    regions     text[],                                    -- null: every region
    state       text not null default 'active' check (state in ('active', 'retired')),
    created_at  timestamptz not null default clock_timestamp(),
    row_version bigint not null default 1
);

create table skus (
    name                           text primary key check (length(name) between 1 and 100),
    shape                          text not null check (shape in ('baremetal', 'gpu_slice')),
    gpu_model                      text not null check (length(gpu_model) between 1 and 100),
    allowed_counts                 integer[] not null check (cardinality(allowed_counts) between 1 and 64),
    default_image                  text references images,
    price_micro_per_gpu_second     bigint not null default 0 check (price_micro_per_gpu_second >= 0),
    price_version                  bigint not null default 1,
    state                          text not null default 'active' check (state in ('active', 'retired')),
    created_at                     timestamptz not null default clock_timestamp(),
    row_version                    bigint not null default 1
);

create table sku_prices (
    sku                        text not null references skus,
    price_version              bigint not null,
    price_micro_per_gpu_second bigint not null,
    since                      timestamptz not null default clock_timestamp(),
    primary key (sku, price_version)
);
