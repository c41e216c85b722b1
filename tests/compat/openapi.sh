#!/usr/bin/env bash
# The OpenAPI document is valid, and schemathesis finds nothing wrong with what it describes: openapi.sh KERNSERVE ENVIRONMENT
environment=$2 here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/http/daemon.sh
. "$here/../http/daemon.sh"
start --allow-client-shm --pinned-bytes 16M
ask "$url/openapi.json" >/dev/null
want "status" 200 "$(status)"
complaint=$("$environment/bin/openapi-spec-validator" "$work/body" 2>&1)
want "openapi-spec-validator: exit code ($(tail -n 1 <<<"$complaint"))" 0 $?
cd "$work" || exit 71 # schemathesis leaves a folder where it runs
"$environment/bin/schemathesis" --config-file "$here/schemathesis.toml" run "$work/body" --url "$url" --max-examples "${KS_EXAMPLES:-15}" \
    --seed 1 --no-color --warnings off >"$work/report" 2>&1
want "schemathesis: exit code" 0 $?
grep -E 'generated|^Seed|Failures:|Tested:' "$work/report"
[ "$wrong" -eq 0 ] || cat "$work/report"
ask "$url/v2/health/ready" >/dev/null
want "ready as ever" 200 "$(status)"
stop
