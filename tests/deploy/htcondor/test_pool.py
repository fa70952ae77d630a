"""The pool's configuration, and the hand-written DAG on the running pool."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from deploy.htcondor import pool
from deploy.htcondor.sites import SITES, write_site_configuration
from deploy.stack import pool_check

RELEASE = pool.Release(*(Path(f"/prefix/{name}") for name in ("bin", "sbin", "libexec", "lib", "share")), version="23.9.6")
JOB_ENVIRONMENT = {"PATH": "/worker/bin:/bin", "SITECONF_ROOT": "/site conf"}
POOL = pool.Pool(Path("/state/test/htcondor-23"), RELEASE, 19618, "wms2", JOB_ENVIRONMENT)
GOLDEN = Path(__file__).parent / "golden/condor_config"


def test_the_generated_configuration_is_as_recorded() -> None:
    assert pool.render(POOL) == GOLDEN.read_text()


def test_a_pool_may_run_fewer_jobs_than_it_has_slots() -> None:
    bounded = pool.render(dataclasses.replace(POOL, most_running_jobs=6))
    assert set(bounded.splitlines()) - set(pool.render(POOL).splitlines()) == {"MAX_JOBS_RUNNING = 6"}


def test_a_value_that_htcondor_could_not_quote_is_refused() -> None:
    with pytest.raises(pool.PoolError, match="cannot be given to jobs"):
        pool.render(dataclasses.replace(POOL, job_environment={"NAME": "it's"}))


@pytest.fixture
def release(tmp_path: Path) -> pool.Release:
    """A release whose token tool writes a new token each time."""
    tool = tmp_path / "bin/condor_token_create"
    tool.parent.mkdir()
    tool.write_text('#!/bin/sh\ntest -s "$CONDOR_CONFIG" && echo $1 $2 $$\n')
    tool.chmod(0o755)
    return dataclasses.replace(RELEASE, bin=tool.parent)


def test_configuring_again_keeps_the_key_the_token_and_local_settings(tmp_path: Path, release: pool.Release) -> None:
    here = dataclasses.replace(POOL, directory=tmp_path, release=release)
    pool.configure(here)
    token = (tmp_path / "client-tokens/wms2").read_text()
    assert token.startswith("-identity wms2@wms2.local ")
    assert (tmp_path / "client-tokens/wms2").stat().st_mode & 0o777 == 0o600
    key = (tmp_path / "passwords.d/POOL").read_bytes()
    (tmp_path / "config.d/90-local.conf").write_text("NUM_CPUS = 2\n")
    pool.configure(here)
    assert (tmp_path / "passwords.d/POOL").read_bytes() == key
    assert (tmp_path / "passwords.d/POOL").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "config.d/90-local.conf").read_text() == "NUM_CPUS = 2\n"
    assert (tmp_path / "client-tokens/wms2").read_text() == token


def test_an_htcondor_on_path_is_found_with_its_version(tmp_path: Path) -> None:
    for directory, program, text in (("bin", "condor_version", "$CondorVersion: 24.0.1 x $"), ("sbin", "condor_master", "")):
        (tmp_path / directory).mkdir()
        (tmp_path / directory / program).write_text(f"#!/bin/sh\necho '{text}'\n")
        (tmp_path / directory / program).chmod(0o755)
    (tmp_path / "libexec/condor").mkdir(parents=True)
    found = pool.release_on_path(f"{tmp_path}/bin:{tmp_path}/sbin")
    assert found is not None
    assert (found.version, found.libexec) == ("24.0.1", tmp_path / "libexec/condor")
    assert pool.release_on_path("/nowhere") is None


def test_every_site_publishes_where_its_files_lie(tmp_path: Path) -> None:
    write_site_configuration(tmp_path / "siteconf", tmp_path / "storage", "root://127.0.0.1:1094/")
    prefixes = {}
    for site in SITES:
        (entry,) = json.loads((tmp_path / "siteconf" / site.cms_name / "storage.json").read_text())
        assert (entry["site"], entry["rse"]) == (site.cms_name, site.disk_rse)
        assert (tmp_path / "storage" / site.disk_rse / "store").is_dir()
        (protocol,) = entry["protocols"]
        prefixes[site.cms_name] = (protocol["protocol"], protocol["prefix"])
    assert prefixes.pop("T2_DE_DESY") == ("XRootD", "root://127.0.0.1:1094/")
    assert prefixes == {
        site.cms_name: ("file", f"{tmp_path}/storage/{site.disk_rse}") for site in SITES if site.cms_name in prefixes
    }


def test_the_site_behind_a_server_says_how_files_are_staged_out(tmp_path: Path) -> None:
    write_site_configuration(tmp_path, tmp_path / "storage", "root://127.0.0.1:1094/")
    (local,) = tmp_path.glob("*/JobConfig/site-local-config.xml")  # that of a part of a site lies deeper
    site = ElementTree.parse(local).getroot().find("site")
    assert site is not None
    assert site.get("name") == local.parents[1].name == "T2_DE_DESY"
    (volume,) = json.loads((local.parents[1] / "storage.json").read_text())
    assert [method.attrib for method in site.iterfind("stage-out/method")] == [
        {"volume": volume["volume"], "protocol": "XRootD", "command": "xrdcp"}
    ]


#: What a job at a site with containers is, for the tests of these.
CONTAINED = """#!/bin/sh
env >seen
ls $BEARER_TOKEN_FILE 2>&1
ls -a /tmp >tmp
ls -d /proc/[0-9]* | wc -l >processes
unshare -Ur true && touch nested
python3 -V || pwd
[ "$1" != waits ] || { trap 'exit 7' TERM; touch waiting; while :; do sleep 0.05; done; }
"""


def test_a_site_gives_jobs_what_a_glideins_container_is_to_them(tmp_path: Path) -> None:
    scratch = tmp_path / "execute/dir_1"
    scratch.mkdir(parents=True)
    (scratch / ".machine.ad").write_text('GLIDEIN_CMSSite = "T2_US_Purdue"\nGLIDEIN_REQUIRED_OS = "rhel8"\n')
    (scratch / "job").write_text(CONTAINED)
    (scratch / "job").chmod(0o755)
    pool.configure_node(tmp_path / "node")
    named = {"_CONDOR_MACHINE_AD": ".machine.ad", "_CONDOR_JOB_AD": ".job.ad", "BEARER_TOKEN_FILE": "token", "TMPDIR": "tmp"}
    environment = {"PATH": "/usr/bin:/bin", "SITECONF_ROOT": "/siteconf", "_CONDOR_SCRATCH_DIR": str(scratch)}
    environment |= {name: f"{scratch}/{value}" for name, value in named.items()}
    words = [str(tmp_path / "node/glidein"), str(scratch / "job"), "an argument"]
    done = subprocess.run(words, cwd=scratch, env=environment, capture_output=True, text=True, check=True)
    seen = dict(line.split("=", 1) for line in (scratch / "seen").read_text().splitlines() if "=" in line)
    assert "TMPDIR" not in seen and seen["SITECONFIG_PATH"] == "/siteconf/T2_US_Purdue/Part"
    place = done.stdout.split()[-1]
    assert seen["_CONDOR_SCRATCH_DIR"] == place and seen["_CONDOR_JOB_AD"] == f"{place}/.job.ad"
    assert not Path(seen["BEARER_TOKEN_FILE"]).exists() or place == "/srv"
    if place == "/srv":  # else this machine lets no user make mounts
        assert (scratch / "nested").exists(), "a container in the container"
        assert int((scratch / "processes").read_text()) < 9, "no processes but its own"
        assert str(tmp_path).startswith("/tmp") or (scratch / "tmp").read_text().split() == [".", ".."]
        with subprocess.Popen([*words[:2], "waits"], cwd=scratch, env=environment, stdout=subprocess.DEVNULL) as waiting:
            while waiting.poll() is None and not (scratch / "waiting").exists():
                time.sleep(0.05)
            waiting.terminate()
            assert waiting.wait(30) == 7, "it is told to stop"
    (scratch / ".machine.ad").write_text('GLIDEIN_CMSSite = "T2_CH_CERN"\n')
    subprocess.run(words, cwd=scratch, env=environment, capture_output=True, check=True)
    assert f"TMPDIR={scratch}/tmp" in (scratch / "seen").read_text().splitlines(), "other sites have no container"


@pytest.mark.pool
@pytest.mark.slow
def test_the_hand_written_dag_runs_to_its_end(tmp_path: Path) -> None:
    assert "CONDOR_CONFIG" in os.environ, "this test needs the stack of `make test`"
    site = pool_check.run_example(tmp_path / "dag", os.environ)
    assert site in {each.cms_name for each in SITES}


@pytest.mark.pool
def test_the_pool_has_the_sites_with_eight_cores_each() -> None:
    output = subprocess.run(
        ["condor_status", "-constraint", "PartitionableSlot", "-af", "GLIDEIN_CMSSite", "TotalSlotCpus"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert sorted(output.splitlines()) == ["T1_US_FNAL 8", "T2_CH_CERN 8", "T2_DE_DESY 8", "T2_US_Purdue 8"]
