#!/bin/sh
# Makes the roles and their databases, or gives the roles their passwords anew: berth owns its database and nothing else,
# the roles of the processes, of operators and of readers own nothing (`berth migrate` grants their rights), temporal may make
# databases, berth_backup may replicate the server and connects to no database of Berth. Safe to repeat. PGHOST, PGPORT and PGUSER say where and as whom.
set -eu
secrets=${SECRETS_DIRECTORY:-/run/secrets}
roles="berth_public_api berth_node_api berth_issuer berth_worker berth_webhooks berth_audit_stream berth_relay berth_operator berth_read_only"
PGPASSWORD=$(cat "$secrets/postgres_password")
export PGPASSWORD
for role in berth temporal berth_backup $roles; do
    export "PASSWORD_OF_$role=$(cat "$secrets/${role}_database_password")"
done
{
    for role in berth temporal berth_backup $roles; do
        cat <<SQL
select 'create role $role login' where not exists (select from pg_roles where rolname = '$role') \\gexec
\\getenv password PASSWORD_OF_$role
alter role $role password :'password';
SQL
    done
    cat <<'SQL'
alter role temporal createdb;
alter role berth_backup replication;
select 'create database berth owner berth' where not exists (select from pg_database where datname = 'berth') \gexec
revoke connect on database berth from public;
SQL
    for role in $roles; do
        printf 'grant connect on database berth to %s;\n' "$role"
    done
} | psql --no-psqlrc --quiet --set ON_ERROR_STOP=1 --dbname postgres
