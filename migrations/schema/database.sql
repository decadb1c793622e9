-- Records of the database itself: the applied functions, and row counts that are read without counting.

-- Types of columns in tables that every create writes. A domain's constraint is parsed once a session, that of a table by
-- each statement, so a CHECK of one column of these tables is a domain (docs/explanation/decisions/0022-domains-on-hot-tables.md).
create domain finite_time as timestamptz check (isfinite(value));
create domain gpu_count as integer check (value > 0);
create domain idempotency_key as text check (length(value) between 1 and 255);
create domain sha256_digest as bytea check (octet_length(value) = 32);

create table sql_functions (
    name          text primary key,
    arguments     text not null,
    sha256        text not null check (sha256 ~ '^[0-9a-f]{64}$'),
    generation    integer not null check (generation > 0),
    applied_at    timestamptz not null default clock_timestamp(),
    deprecated_at timestamptz,
    deprecated_in integer,
    constraint deprecation_is_whole check ((deprecated_at is null) = (deprecated_in is null))
);
comment on table sql_functions is 'The functions that the loader applied (docs/explanation/sql-functions.md).';
comment on column sql_functions.arguments is 'Argument types, as pg_get_function_identity_arguments returns them.';
comment on column sql_functions.sha256 is 'Digest of the file that was applied.';
comment on column sql_functions.generation is 'Generation of the function files that this text was applied from.';
comment on column sql_functions.deprecated_at is 'When an upgrade first found no file for it; null while the file exists.';
comment on column sql_functions.deprecated_in is 'Generation of that upgrade; an upgrade of a later generation drops the function.';

create table function_generation (
    one        boolean primary key default true check (one),
    generation integer not null check (generation >= 0)
);
comment on table function_generation is 'One row: the newest generation of function files applied. An older loader refuses to run.';
comment on column function_generation.one is 'Always true, so that there is one row.';
insert into function_generation (generation) values (0);

create table live_rows (
    kind   text not null,
    stripe integer not null,
    number bigint not null,
    constraint live_rows_once primary key (kind, stripe)
) with (fillfactor = 25, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
comment on table live_rows is 'Row counts kept by triggers: the sum of number over all stripes of a kind.';
comment on column live_rows.kind is 'operations, resources, reservations (hold or confirmed) or holds.';
comment on column live_rows.stripe is 'Process id of the backend that counted, so that no two transactions wait for one row; 0: the initial count.';
comment on column live_rows.number is 'Rows added minus rows removed by this backend; may be negative.';
insert into live_rows (kind, stripe, number)
values ('operations', 0, 0), ('resources', 0, 0), ('reservations', 0, 0), ('holds', 0, 0);
