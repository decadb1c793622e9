#!/bin/sh
# Makes Temporal's two databases and brings them to the schema of this version of its tools. Safe to repeat.
set -eu
SQL_PASSWORD=$(cat "${SECRETS_DIRECTORY:-/run/secrets}/temporal_database_password")
export SQL_PASSWORD
schema=/etc/temporal/schema/postgresql/v12
for pair in temporal:temporal temporal_visibility:visibility; do
    database=${pair%%:*}
    part=${pair##*:}
    temporal-sql-tool --database "$database" create
    temporal-sql-tool --database "$database" setup-schema --version 0.0
    temporal-sql-tool --database "$database" update-schema --schema-dir "$schema/$part/versioned"
done
