#!/bin/sh
# Secrets reach a container as files. A setting that holds one (an address with its password) is read from the file named
# after it, /run/secrets/BERTH_..., so that no secret stands in compose.yaml or in the output of `docker inspect`.
set -eu
for file in "${SECRETS_DIRECTORY:-/run/secrets}"/BERTH_*; do
    [ -e "$file" ] || continue
    value=$(cat "$file")
    export "$(basename "$file")=$value"
done
exec "$@"
