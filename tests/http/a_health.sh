#!/usr/bin/env bash
# Health and metrics answer on both listeners, by any Host, and the metrics pass promtool's linter.
. "$(dirname "$0")/daemon.sh"
start
for base in "$url" "$admin"; do
    want "live on ${base##*:}" '{"live":true}' "$(ask "$base/v2/health/live")"
    want "ready on ${base##*:}" '{"live":true,"ready":true}' "$(ask "$base/v2/health/ready")"
    ask "$base/livez" >/dev/null
    want "livez on ${base##*:}" 200 "$(status)"
    ask "$base/readyz" >/dev/null
    want "readyz on ${base##*:}" 200 "$(status)"
    ask -H 'Host: probe.example' "$base/v2/health/ready" >/dev/null
    want "ready for a probe with a foreign Host on ${base##*:}" 200 "$(status)"
    ask -H 'Host: 10.1.2.3:8002' "$base/metrics" >/dev/null
    want "metrics for a scraper with a foreign Host on ${base##*:}" 200 "$(status)"
    has "metrics: content type" '^[Cc]ontent-[Tt]ype: text/plain; version=0\.0\.4; charset=utf-8$' "$(headers)"
done
want "HEAD on live" 200 "$(curl -s -m 5 -I -o /dev/null -w '%{http_code}' "$url/v2/health/live")"
want "HEAD carries no body" 0 "$(curl -s -m 5 -I -o /dev/null -w '%{size_download}' "$url/v2/health/live")"

ask -d '{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1,2],"data":[1,2]}]}' "$url/v2/models/softmax/infer" >/dev/null
page=$(ask "$admin/metrics")
has "the request is counted" '^kernserve_inference_requests_total\{.*model="softmax".*\} 1(\.0)?$' "$page"
has "its phases are counted" '^kernserve_inference_phase_duration_seconds_count\{.*model="softmax".*phase="compute".*\} 1(\.0)?$' "$page"
has "the state is ready" '^kernserve_state\{kernserve_state="ready"\} 1(\.0)?$' "$page"
want "the start's time is the same in each scrape" "$(grep '^process_start_time_seconds' <<<"$page")" \
    "$(ask "$url/metrics" | grep '^process_start_time_seconds')"
if command -v promtool >/dev/null; then
    code=0
    complaint=$(promtool check metrics <<<"$page" 2>&1) || code=$?
    want "promtool check metrics: exit code (${complaint:-no complaint})" 0 "$code"
else
    echo "skip  promtool is not installed"
fi
for target in "$url/openapi.json"; do
    plain=$(ask "$target")
    want "${target##*:} unpacked" "$plain" "$(ask --compressed "$target")"
    has "${target##*:} packed: its coding" '^[Cc]ontent-[Ee]ncoding: (deflate|gzip)' "$(headers)"
    has "${target##*:} packed: a cache keeps both" '^[Vv]ary: Accept-Encoding' "$(headers)"
    want "${target##*:} as it is to a client that has no coding" "" \
        "$(ask "$target" >/dev/null; headers | grep -i '^content-encoding')"
done
packed=$(ask -H 'Accept-Encoding: gzip' "$admin/metrics" | wc -c)
want "a packed scrape is below 20 kB ($packed)" yes "$([[ $packed -lt 20000 ]] && echo yes)"
want "HEAD has the length of the packed document" "$(ask -H 'Accept-Encoding: gzip' "$url/openapi.json" | wc -c)" \
    "$(curl -s -m 5 -I -H 'Accept-Encoding: gzip' "$url/openapi.json" | tr -d '\r' | sed -n 's/^[Cc]ontent-[Ll]ength: //p')"
want "a short document stays as it is" "" "$(ask --compressed "$url/v2" >/dev/null; headers | grep -i '^content-encoding')"
"$kernserve" --healthcheck "$url/v2/health/ready" >/dev/null 2>&1
want "kernserve --healthcheck" 0 $?
bare() { env -i LD_LIBRARY_PATH="${LD_LIBRARY_PATH:-}" "$kernserve" "$@"; }
sample=$(dirname "$0")/../../deploy/config/kernserve.conf
want "the sample of a configuration is what is printed" "" "$(bare --dump-config=sample | diff - "$sample")"
want "the sample has every key" "$(bare --dump-config | sed -n 's/^\([a-z-]*\) =.*/\1/p' | sort)" "$(sed -n 's/^#\([a-z-]*\) =.*/\1/p' "$sample" | sort)"
want "the sample sets none" 0 "$(bare --dump-config --config "$sample" | grep -c '^# from: [^p]')"
sed 's/^#\([a-z-]* =\)/\1/' "$sample" >"$work/all.conf"
want "its keys, set, are the presets" "$(bare --dump-config | grep -v '^#')" "$(bare --dump-config --config "$work/all.conf" | grep -v '^#')"
stop
