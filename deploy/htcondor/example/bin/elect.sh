#!/bin/sh
# elect.sh NODES_LOG JOB_ID RETURN: POST script of the landing job. Its execute event names the site it ran at.
# The last event of exactly this cluster counts: an evicted job executes again elsewhere.
set -eu
[ "$3" -eq 0 ]
event=$(printf '001 (%03d.' "${2%%.*}")
site=$(awk -v event="$event" '
    index($0, event) == 1 { inside = 1; next }
    $0 == "..."           { inside = 0 }
    inside && $1 == "GLIDEIN_CMSSite" { gsub(/"/, "", $3); found = $3 }
    END { print found }' "$1")
[ -n "$site" ]
echo "ELECTED_SITE = $site" > site.inc.new
mv site.inc.new site.inc
