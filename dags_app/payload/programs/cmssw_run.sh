#!/bin/bash
# cmssw_run.sh RELEASE ARCH AREA COMMAND... : run COMMAND, in the current directory, in the environment of a CMSSW release
# from /cvmfs/cms.cern.ch. The project area is made in AREA. When the environment cannot be set up it leaves the reason in
# release_problem.txt (the payload reports CMS code 50513) and exits 97, else with COMMAND's own status, which may be 97 too.
release=$1 arch=$2 area=$3
shift 3
back=$PWD
fail() { echo "cmssw_run.sh: $*" >&2; echo "$*" > "$back/release_problem.txt"; exit 97; }
export SCRAM_ARCH=$arch
source "${VO_CMS_SW_DIR:-/cvmfs/cms.cern.ch}/cmsset_default.sh" || fail "cmsset_default.sh failed"
mkdir -p "$area" && cd "$area" || fail "cannot use $area"
exec 9>.lock && flock 9 || fail "cannot lock $area"  # others may want the same release at the same time
[ -d "$release" ] || scramv1 project CMSSW "$release" 9>&- || fail "no release $release for $arch"
exec 9>&-
cd "$release" || fail "scram made no $release"
environment=$(scramv1 runtime -sh) || fail "scram runtime failed in $release"
eval "$environment"
cd "$back" || fail "cannot return to $back"
exec "$@"
