#!/bin/sh
# proc.sh NODE FIRST LAST: writes one line per event and the site it ran at; the file goes back by HTCondor's transfer.
set -eu
site=$(sed -n 's/^GLIDEIN_CMSSite = "\(.*\)"$/\1/p' "$_CONDOR_MACHINE_AD")
test -s "$SITECONF_ROOT/$site/storage.json"
for event in $(seq "$2" "$3"); do echo "$event $site"; done > "$1.txt"
