#!/bin/sh
# The head of the payload's file: finds a Python that runs the zipapp behind these lines, and becomes it. First those on PATH;
# then, where CMS's agents look, COMP's on CVMFS, and those that come with releases for this system. They need libraries of
# their own, which the payload takes away from its children again (cli.py). It needs nothing but the standard library: what else is
# installed is not looked for (-S). Without one: CMS's exit code 11004, whose low byte is 252.
looked=
runs() {
    [ -x "$1" ] || return 1
    found=$(LD_LIBRARY_PATH=$2 "$1" -I -S -c 'import sys, zlib
print("%d.%d.%d" % sys.version_info[:3])
sys.exit(sys.version_info < (3, 9))' 2>/dev/null) && return
    looked="$looked, $1 (${found:-does not run})"
    return 1
}

IFS=:
for directory in ${PATH:-/usr/bin:/bin}; do
    for python in "$directory/python3" "$directory/python3.9" "$directory"/python3.[1-9][0-9]; do
        runs "$python" "${LD_LIBRARY_PATH-}" && exec "$python" -E -s -S "$0" "$@"
    done
done
unset IFS

system=$(sed -n 's/^GLIDEIN_REQUIRED_OS = "rhel\([0-9]*\)"$/\1/p' "${_CONDOR_MACHINE_AD:-/dev/null}" 2>/dev/null)
[ -n "$system" ] || system=$(sed -n 's/.* release \([0-9]*\).*/\1/p' /etc/redhat-release 2>/dev/null)
[ -n "$system" ] || system='[0-9]*' # not known: what runs here shows itself
machine=$(uname -m)
comp="COMP/rhel${system}_$machine/external/python3"
releases="[a-z]*${system}_$(echo "$machine" | sed 's/x86_64/amd64/')_*/external/python3"
roots=
for root in "${VO_CMS_SW_DIR-}" "${OSG_APP:+$OSG_APP/cmssoft/cms}" "${CVMFS-}" "${CVMFS:+$CVMFS/cms.cern.ch}" /cvmfs/cms.cern.ch; do
    [ -n "$root" ] || continue
    roots="$roots $root"
    for place in "$root"/$comp/* "$root"/$releases/*; do
        [ -f "$place/etc/profile.d/init.sh" ] || continue
        libraries=$(. "$place/etc/profile.d/init.sh" >/dev/null 2>&1; echo "${LD_LIBRARY_PATH-}")
        if runs "$place/bin/python3" "$libraries"; then
            export _WMS2_LD_LIBRARY_PATH="${LD_LIBRARY_PATH-}" LD_LIBRARY_PATH="$libraries"
            exec "$place/bin/python3" -E -s -S "$0" "$@"
        fi
    done
done

problem="no Python of 3.9 or newer on PATH ($PATH), nor in $comp or $releases of$roots${looked:+; found:${looked#,}}"
problem="exit code 11004: $(echo "$problem" | tr -d '"\\')"
echo "wms2_payload: $problem" >&2
dag=.. unit=${PWD##*/} node=landing now=$(date -u +%Y-%m-%dT%H:%M:%SZ)
case ${1-} in
    job | merge | cleanup | site) exit 252 ;;
    reelect) dag=. unit=$2 ;;
    gather | post) node=$2 ;;
    collect) node=merge ;;
esac
# DAGMan throws away what its scripts print: it goes into their log, and into the DAG's log of failures (failure_log.py).
echo "$now ${1-}: $problem" >>"$dag/$unit/scripts.log"
fence=$(sed -n 's/.*WMS2_Fence="\([0-9]*\)".*/\1/p' "$dag/fence.dag.inc" 2>/dev/null)
[ -n "$fence" ] || exit 252
facts='"role": "processing", "attempt": 0, "job_id": "-", "final": false, "site": "", "code": 11004, "category": "infrastructure"'
facts="$facts, "'"action": "retry", "rule": null, "bad_input_files": [], "log_tail": ""'
printf '{"schema": "wms2.failure/1", "at": "%s", "unit": "%s", "node": "%s", "fence": %s, "step": "%s", %s, "message": "%s", "reason": "%s"}\n' \
    "$now" "$unit" "$node" "$fence" "$1" "$facts" "$problem" "$problem" >>"$dag/failures.jsonl"
exit 252
