-- The catalogue: regions, images, SKUs and every price that a SKU has had.

create table regions (
    name         text primary key check (name ~ '^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$'),
    display_name text not null,
    created_at   timestamptz not null default clock_timestamp()
);
comment on table regions is 'Places that nodes are in.';

create table images (
    name        text primary key check (length(name) between 1 and 100),
    url         text not null check (length(url) <= 2000),
    sha256      text not null check (sha256 ~ '^[0-9a-f]{64}$'),
    shapes      text[] not null check (shapes <@ array['baremetal', 'gpu_slice'] and cardinality(shapes) > 0),
    gpu_models  text[],
    regions     text[],
    state       text not null default 'active' check (state in ('active', 'retired')),
    created_at  timestamptz not null default clock_timestamp(),
    row_version bigint not null default 1,
    deleted_at  timestamptz
);
comment on table images is 'Disk images that an allocation boots.';
comment on column images.sha256 is 'Digest of the file at url, in lower-case hex; nodes verify it.';
comment on column images.gpu_models is 'GPU models that the image supports; null: any.';
comment on column images.regions is 'Regions that offer the image; null: every region.';
comment on column images.deleted_at is 'The name is free again; the row stays for creates admitted just before.';

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
comment on table skus is 'Products: shape, GPU model, allowed counts and price.';
comment on column skus.allowed_counts is 'Numbers of GPUs that one allocation may have.';
comment on column skus.price_micro_per_gpu_second is 'Present price in millionths of the currency unit per GPU and second.';
comment on column skus.price_version is 'Rises by one with every change of the price.';

create table sku_prices (
    sku                        text not null references skus,
    price_version              bigint not null,
    price_micro_per_gpu_second bigint not null,
    since                      timestamptz not null default clock_timestamp(),
    primary key (sku, price_version)
);
comment on table sku_prices is 'Every price that a SKU has had; rows never change.';

create trigger skus_keep_prices after insert or update of price_version on skus
    for each row execute function keep_price();
create trigger sku_prices_never_change before update or delete on sku_prices
    for each row execute function refuse_change();
