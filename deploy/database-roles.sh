#!/bin/sh
# Makes the roles and their databases, or gives the roles their passwords anew: berth owns its database and nothing else,
# berth_process owns nothing (`berth migrate` grants its rights), temporal may make databases. Safe to repeat. PGHOST, PGPORT and PGUSER say where and as whom.
set -eu
secrets=${SECRETS_DIRECTORY:-/run/secrets}
PGPASSWORD=$(cat "$secrets/postgres_password")
BERTH_PASSWORD=$(cat "$secrets/berth_database_password")
PROCESS_PASSWORD=$(cat "$secrets/berth_process_database_password")
TEMPORAL_PASSWORD=$(cat "$secrets/temporal_database_password")
export PGPASSWORD BERTH_PASSWORD PROCESS_PASSWORD TEMPORAL_PASSWORD
exec psql --no-psqlrc --quiet --set ON_ERROR_STOP=1 --dbname postgres <<'SQL'
\getenv berth_password BERTH_PASSWORD
\getenv process_password PROCESS_PASSWORD
\getenv temporal_password TEMPORAL_PASSWORD
select 'create role berth login' where not exists (select from pg_roles where rolname = 'berth') \gexec
select 'create role berth_process login' where not exists (select from pg_roles where rolname = 'berth_process') \gexec
select 'create role temporal login createdb' where not exists (select from pg_roles where rolname = 'temporal') \gexec
alter role berth password :'berth_password';
alter role berth_process password :'process_password';
alter role temporal password :'temporal_password';
select 'create database berth owner berth' where not exists (select from pg_database where datname = 'berth') \gexec
revoke connect on database berth from public;
grant connect on database berth to berth_process;
SQL
