"""What sites say of their storage: names by prefix, rules and chains of rules; where their jobs stage out to, in which order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dags_app.payload.contract import codes, rules
from dags_app.payload.contract.codes import PayloadError
from dags_app.payload.run import siteconf, storage
from dags_app.payload.run.doors import FileSystem, Gfal, XRootD
from dags_app.payload.run.siteconf import Description, Protocol, Rule, StorageProblem

SITE, OTHER = "T2_DE_DESY", "T1_DE_KIT"
#: The form that CMS's dCache sites publish: a path made by one protocol is what the others begin with.
PNFS = {
    "protocol": "pnfs",
    "access": "virtual",
    "rules": [
        {"lfn": "/+store/unmerged/(.*)", "pfn": "/pnfs/desy.de/scratch/unmerged/$1"},
        {"lfn": "/+(.*)", "pfn": "/pnfs/desy.de/cms/$1"},
    ],
}
CHAINED = [
    PNFS,
    {"protocol": "dcap", "access": "site-ro", "rules": [{"lfn": "/+(.*)", "pfn": "dcap://door/$1", "chain": "pnfs"}]},
    {"protocol": "WebDAV", "access": "global-rw", "rules": [{"lfn": "/+(.*)", "pfn": "davs://door:2880/$1", "chain": "pnfs"}]},
    {"protocol": "XRootD", "access": "global-rw", "rules": [{"lfn": "/+(.*)", "pfn": "root://door:1094//$1"}]},
]
KIT = [{"protocol": "WebDAV", "access": "global-rw", "prefix": "davs://kit:2880/pnfs"}]

names = st.text("abcXYZ0123-_.", min_size=1, max_size=8)
lfns = st.lists(names, min_size=1, max_size=5).map(lambda parts: "/store/" + "/".join(parts))


def volume(site: str, protocols: list[dict[str, Any]], kind: str = "DISK", **more: Any) -> dict[str, Any]:
    return {"site": site, "volume": f"{site}_{kind}", "protocols": protocols, "type": kind, "rse": f"{site}_{kind}", **more}


@pytest.fixture
def sites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A SITECONF with a site that has several protocols, and another one."""
    monkeypatch.setenv("SITECONF_ROOT", str(tmp_path))
    describe(tmp_path, SITE, volume(SITE, [PNFS], "TAPE"), volume(SITE, CHAINED))
    describe(tmp_path, OTHER, volume(OTHER, KIT))
    return tmp_path


def describe(root: Path, site: str, *volumes: dict[str, Any]) -> None:
    (root / site).mkdir(exist_ok=True)
    (root / site / "storage.json").write_text(json.dumps(volumes))


def configure(place: Path, *elements: str, site: str = SITE) -> None:
    (place / "JobConfig").mkdir(parents=True, exist_ok=True)
    text = f'<site-local-config><site name="{site}">{"".join(elements)}</site></site-local-config>'
    (place / "JobConfig/site-local-config.xml").write_text(text)


def ways(site: str = SITE) -> list[tuple[str, str]]:
    return [(method.description.rse, method.protocol.name) for method in siteconf.methods(site)]


@given(lfns)
def test_a_prefix_stands_before_the_lfn(lfn: str) -> None:
    protocol = Protocol("XRootD", "global-rw", "root://door/", ())
    assert Description(SITE, "", "DISK", SITE, (protocol,)).pfn(protocol, lfn) == f"root://door/{lfn}"


@given(st.lists(st.tuples(names, names), min_size=1, max_size=4, unique_by=lambda rule: rule[0]), lfns)
def test_the_first_rule_that_matches_the_whole_name_makes_the_pfn(rules: list[tuple[str, str]], lfn: str) -> None:
    found = tuple(Rule(f"/+store/{first.replace('.', '[.]')}/(.*)", f"/{disk}/$1", None) for first, disk in rules)
    protocol = Protocol("file", "", None, found)
    described = Description(SITE, "", "DISK", SITE, (protocol,))
    area, _, rest = lfn.removeprefix("/store/").partition("/")
    wanted = next((f"file:///{disk}/{rest}" for first, disk in rules if first == area), None)
    if wanted and "/" in lfn.removeprefix("/store/"):
        assert described.pfn(protocol, lfn) == wanted
    else:
        with pytest.raises(StorageProblem, match="no rule of T2_DE_DESY"):
            described.pfn(protocol, lfn)


@given(lfns, st.integers(1, 5))
def test_a_chain_applies_the_protocols_it_names_first(lfn: str, length: int) -> None:
    protocols = [Protocol("0", "virtual", None, (Rule("/+(.*)", "/begin/$1", None),))]
    protocols += [Protocol(str(n), "virtual", None, (Rule("/+(.*)", f"/{n}/$1", str(n - 1)),)) for n in range(1, length)]
    last = Protocol("last", "", None, (Rule("/+(.*)", "davs://door/$1", str(length - 1)),))
    described = Description(SITE, "", "DISK", SITE, (*protocols, last))
    between = "/".join([*map(str, range(length - 1, 0, -1)), "begin"])
    assert described.pfn(last, lfn) == f"davs://door/{between}{lfn}"


def test_a_chain_that_comes_back_to_itself_is_told() -> None:
    one, two = (Protocol(a, "", None, (Rule("(.*)", "$1", b),)) for a, b in (("one", "two"), ("two", "one")))
    with pytest.raises(StorageProblem, match="the chain one -> two -> one has no end"):
        Description(SITE, "", "DISK", SITE, (one, two)).pfn(one, "/store/a")


def test_a_rule_that_takes_too_long_gives_no_name_to_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "SEARCH_SECONDS", 0.05)
    slow, any_name = Rule("/(a+)+b", "/slow/$1", None), Rule("/+(.*)", "/disk/$1", None)
    described = Protocol("pnfs", "virtual", None, (slow, any_name))
    chained = Protocol("WebDAV", "", None, (Rule("/+(.*)", "davs://door/$1", "pnfs"), any_name))
    after = Protocol("XRootD", "", None, (Rule("/+(.*)", "root://door/$1", "late"), any_name))
    late = Protocol("late", "virtual", None, (Rule("/(.*)", "/$1", None),))
    description = Description(SITE, "", "DISK", SITE, (described, chained, after, late))
    for protocol in (described, chained):
        for _ in range(2):  # it is given up once, and refused ever after
            with pytest.raises(StorageProblem, match="takes too long"):
                description.pfn(protocol, f"/{'a' * 40}")
    assert description.pfn(after, "/store/x") == "root://door/store/x"
    rules.GIVEN_UP.clear()


def test_names_as_cms_sites_describe_them(sites: Path) -> None:
    described = siteconf.methods(SITE)[0].description
    pfns = {each.name: described.pfn(each, "/store/unmerged/a/b.root") for each in described.protocols}
    assert pfns["WebDAV"] == "davs://door:2880/pnfs/desy.de/scratch/unmerged/a/b.root"
    assert pfns["XRootD"] == "root://door:1094//store/unmerged/a/b.root"


def test_without_a_job_configuration_the_disk_volumes_writable_protocols_are_tried_in_order(sites: Path) -> None:
    assert ways() == [("T2_DE_DESY_DISK", "WebDAV"), ("T2_DE_DESY_DISK", "XRootD")]
    assert [type(way.door) for way in storage.site_volumes(SITE)[0].ways] == [Gfal, XRootD]


def test_the_job_configuration_orders_the_methods_and_other_sites_come_last(sites: Path) -> None:
    methods = [
        f'<method site="{OTHER}" volume="{OTHER}_DISK" protocol="WebDAV" command="gfal2"/>',
        '<method volume="T2_DE_DESY_DISK" protocol="XRootD" command="xrdcp" option="-S 2 --wma-old"/>',
        '<method volume="T2_DE_DESY_DISK" protocol="WebDAV"/>',
    ]
    configure(sites / SITE, "<stage-out>", *methods, "</stage-out>")
    assert ways() == [("T2_DE_DESY_DISK", "XRootD"), ("T2_DE_DESY_DISK", "WebDAV"), ("T1_DE_KIT_DISK", "WebDAV")]
    own, fallback = storage.site_volumes(SITE)
    assert (own.rse, own.ways[0].door) == ("T2_DE_DESY_DISK", XRootD(("-S", "2")))
    assert (fallback.rse, fallback.pfn("/store/a")) == ("T1_DE_KIT_DISK", "davs://kit:2880/pnfs/store/a")


@pytest.mark.parametrize("own", ['protocol="XRootD" command="lcg-cp"', 'protocol="SRM"'])
def test_a_site_whose_own_ways_are_unknown_sends_nothing_to_another_one(sites: Path, own: str) -> None:
    methods = [f'<method volume="T2_DE_DESY_DISK" {own}/>', f'<method site="{OTHER}" volume="{OTHER}_DISK" protocol="WebDAV"/>']
    configure(sites / SITE, "<stage-out>", *methods, "</stage-out>")
    with pytest.raises(PayloadError, match=r"lcg-cp; known are cp, xrdcp|protocol 'SRM'") as error:
        storage.site_volumes(SITE)
    assert error.value.code == codes.STORAGE_UNUSABLE and SITE in error.value.message


@pytest.mark.parametrize("other", ['protocol="WebDAV" command="lcg-cp"', 'protocol="SRM"'])
def test_a_way_that_is_left_out_is_named_in_the_jobs_log(sites: Path, other: str, capfd: pytest.CaptureFixture[str]) -> None:
    methods = ['<method volume="T2_DE_DESY_DISK" protocol="XRootD"/>', f'<method volume="T2_DE_DESY_DISK" {other}/>']
    configure(sites / SITE, "<stage-out>", *methods, "</stage-out>")
    (found,) = storage.site_volumes(SITE)
    assert [way.protocol.name for way in found.ways] == ["XRootD"]
    said = capfd.readouterr().err
    assert f"{SITE} has a way to stage out that cannot be used" in said and ("lcg-cp" in said or "'SRM'" in said)


def test_fermilabs_command_and_the_options_of_cmss_agents_are_known(sites: Path) -> None:
    options = "--wma-preload stashcp --wma-cerncastor -S 2 --wma-preload=other -N"
    method = f'<method volume="T2_DE_DESY_DISK" protocol="XRootD" command="stageout-xrdcp-fnal" option="{options}"/>'
    configure(sites / SITE, f"<stage-out>{method}</stage-out>")
    assert storage.site_volumes(SITE)[0].ways[0].door == XRootD(("-S", "2", "-N"))


def test_a_fallback_that_is_described_badly_costs_nothing_else(sites: Path) -> None:
    methods = ['<method volume="T2_DE_DESY_DISK" protocol="XRootD"/>', f'<method site="{OTHER}" volume="x" protocol="XRootD"/>']
    configure(sites / SITE, "<stage-out>", *methods, "</stage-out>")
    (sites / OTHER / "storage.json").write_text("{")
    assert ways() == [("T2_DE_DESY_DISK", "XRootD")]


def test_an_older_configuration_falls_back_to_a_prefix(sites: Path) -> None:
    values = '<command value="gfal2"/><lfn-prefix value="davs://kit/pnfs"/><phedex-node value="T1_DE_KIT_Disk"/>'
    configure(sites / SITE, f"<fallback-stage-out>{values}</fallback-stage-out>")
    assert ways()[-1] == ("T1_DE_KIT_Disk", "fallback")
    assert storage.site_volumes(SITE)[-1].pfn("/store/a") == "davs://kit/pnfs/store/a"


def test_the_worker_nodes_local_directory_counts_where_it_is_of_the_site(sites: Path) -> None:
    configure(sites / "local", '<stage-out><method volume="T2_DE_DESY_DISK" protocol="XRootD"/></stage-out>')
    assert ways() == [("T2_DE_DESY_DISK", "XRootD")]
    assert ways(OTHER) == [("T1_DE_KIT_DISK", "WebDAV")]
    (sites / SITE / "storage.json").rename(sites / "local/storage.json")
    assert ways() == [("T2_DE_DESY_DISK", "XRootD")]


def test_what_is_mounted_needs_no_command(sites: Path) -> None:
    describe(sites, SITE, volume(SITE, [{"protocol": "file", "access": "site-rw", "prefix": "/mnt"}]))
    configure(sites / SITE, '<stage-out><method volume="T2_DE_DESY_DISK" protocol="file" command="cp"/></stage-out>')
    assert isinstance(storage.site_volumes(SITE)[0].ways[0].door, FileSystem)
    assert storage.site_volumes(SITE)[0].pfn("/store/a.root") == "file:///mnt/store/a.root"


@pytest.mark.parametrize(
    ("volumes", "config", "message"),
    [
        ([volume(SITE, [PNFS])], "", "no DISK volume with an RSE and a protocol that is written by"),
        ([volume(SITE, CHAINED, rse=None)], "", "no DISK volume with an RSE"),
        ([volume(SITE, CHAINED, "TAPE")], "", "no DISK volume with an RSE"),
        ([volume(SITE, [{"protocol": "x", "access": "site-rw"}])], "", "neither prefix nor rules"),
        ([volume(SITE, [{"protocol": "x", "rules": [{"lfn": "(", "pfn": "/a"}]}])], "", "lfn: '\\(' is no regular expression"),
        ([volume(SITE, [{"protocol": "x", "rules": [{"lfn": "/(.*)", "pfn": "/$2"}]}])], "", "lfn has no group \\$2"),
        ([volume(SITE, CHAINED)], '<method volume="Y" protocol="XRootD"/>', "no volume 'Y' with an RSE and protocol 'XRootD'"),
        ([volume(SITE, CHAINED)], '<method volume="T2_DE_DESY_DISK" protocol="XRootD" command="dccp"/>', "by dccp; known are"),
    ],
)
def test_a_site_that_cannot_be_written_to_is_named(sites: Path, volumes: list[Any], config: str, message: str) -> None:
    describe(sites, SITE, *volumes)
    if config:
        configure(sites / SITE, f"<stage-out>{config}</stage-out>")
    with pytest.raises(PayloadError, match=message) as error:
        storage.site_volumes(SITE)[0]
    assert error.value.code == codes.STORAGE_UNUSABLE and SITE in error.value.message


@pytest.mark.parametrize("config", ["", '<method volume="T2_DE_DESY_DISK" protocol="XRootD"/>'])
def test_what_is_wrong_with_volumes_that_are_not_written_to_costs_nothing(sites: Path, config: str) -> None:
    tape, strangers = volume(SITE, [], "TAPE") | {"protocols": None}, [{"rse": "T2_XX_Nowhere"}, "none", None]
    describe(sites, SITE, tape, *strangers, volume(SITE, CHAINED))  # type: ignore[arg-type]
    if config:
        configure(sites / SITE, f"<stage-out>{config}</stage-out>")
    assert ("T2_DE_DESY_DISK", "XRootD") in ways()


def test_a_site_without_a_description_is_named(sites: Path) -> None:
    with pytest.raises(PayloadError, match="storage description of T3_XX_Nowhere cannot be read"):
        storage.site_volumes("T3_XX_Nowhere")[0]


def test_without_a_siteconf_the_message_says_what_to_set(sites: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SITECONF_ROOT")
    monkeypatch.setattr(siteconf, "CVMFS", sites / "nothing")
    with pytest.raises(PayloadError, match="SITECONF_ROOT is not set"):
        storage.site_volumes(SITE)[0]


def test_cvmfs_has_the_sites_where_nothing_is_set(sites: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SITECONF_ROOT")
    monkeypatch.setattr(siteconf, "CVMFS", tmp_path / "cvmfs")
    (tmp_path / "cvmfs/SITECONF").mkdir(parents=True)
    (sites / SITE).rename(tmp_path / "cvmfs/SITECONF" / SITE)
    assert storage.site_volumes(SITE)[0].rse == "T2_DE_DESY_DISK"


SUBSITE = "DESY-HPC"


@pytest.fixture
def subsite(sites: Path) -> Path:
    """A part of the site that has a storage of its own, and another site's below which it stages out when that refuses."""
    hpc = volume(SITE, [{"protocol": "file", "access": "site-rw", "prefix": "/hpc"}], rse="T2_DE_DESY_HPC", volume="HPC")
    describe(sites, SITE, volume(SITE, CHAINED), hpc)
    configure(sites / SITE, '<stage-out><method volume="T2_DE_DESY_DISK" protocol="WebDAV" command="gfal2"/></stage-out>')
    methods = f'<method volume="HPC" protocol="file"/><method site="{OTHER}" volume="{OTHER}_DISK" protocol="WebDAV"/>'
    configure(sites / SITE / SUBSITE, f'<subsite name="{SUBSITE}"/><stage-out>{methods}</stage-out>')
    return sites / SITE / SUBSITE


def written(site: str = SITE) -> list[str]:
    return [each.rse for each in storage.site_volumes(site) if each.is_written]


@pytest.mark.parametrize("local", ["another part", "another site", "absent"])
@pytest.mark.parametrize("at", ["SITECONF_ROOT", "CVMFS", "nowhere"])
def test_what_a_pilot_names_says_where_its_jobs_write_to(
    subsite: Path, sites: Path, monkeypatch: pytest.MonkeyPatch, local: str, at: str
) -> None:
    if local != "absent":
        (sites / "local").symlink_to(sites / (SITE if local == "another part" else OTHER))
    if at != "SITECONF_ROOT":
        monkeypatch.delenv("SITECONF_ROOT")
        monkeypatch.setattr(siteconf, "CVMFS", sites.parent / "cvmfs")
    if at == "CVMFS":
        (sites.parent / "cvmfs").mkdir(exist_ok=True)
        (sites.parent / "cvmfs/SITECONF").unlink(missing_ok=True)
        (sites.parent / "cvmfs/SITECONF").symlink_to(sites)
    monkeypatch.setenv("SITECONFIG_PATH", str(subsite))
    assert written() == ["T2_DE_DESY_HPC", "T1_DE_KIT_DISK"]
    monkeypatch.setenv("SITECONFIG_PATH", str(sites / SITE))
    assert written() == ["T2_DE_DESY_DISK"]


def test_all_parts_of_a_site_are_read_and_cleaned_from_each(subsite: Path, sites: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    everywhere = {"T2_DE_DESY_DISK", "T2_DE_DESY_HPC", "T1_DE_KIT_DISK"}
    assert written() == ["T2_DE_DESY_DISK"]
    assert {each.rse for each in storage.site_volumes(SITE)} == everywhere
    monkeypatch.setenv("SITECONFIG_PATH", str(subsite))
    assert {each.rse for each in storage.site_volumes(SITE)} == everywhere
    (subsite / "JobConfig/site-local-config.xml").write_text("<")
    monkeypatch.delenv("SITECONFIG_PATH")
    assert [each.rse for each in storage.site_volumes(SITE)] == ["T2_DE_DESY_DISK"], "another part that is described badly"


@pytest.fixture
def parts(sites: Path) -> list[Path]:
    """A site whose parts alone have storage, each its own, described beside what its jobs are told."""
    places = [sites / SITE / name for name in ("Alps", "Baltic", "Coast")]
    (sites / SITE / "storage.json").unlink()
    for place in places:
        method = f'<method volume="{place.name}" protocol="file"/>' if place.name != "Coast" else ""
        configure(place, f'<subsite name="{place.name}"/>', f"<stage-out>{method}</stage-out>" if method else "")
        listed = volume(SITE, [{"protocol": "file", "prefix": f"/{place.name}"}], volume=place.name, rse=f"{SITE}_{place.name}")
        describe(sites / SITE, place.name, listed)
    return places


@pytest.mark.parametrize("at", ["SITECONF_ROOT", "nowhere", "a link"])
def test_parts_of_a_site_without_a_storage_of_its_own_write_to_theirs_and_clean_all(
    parts: list[Path], sites: Path, monkeypatch: pytest.MonkeyPatch, at: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    if at == "nowhere":
        monkeypatch.delenv("SITECONF_ROOT")
        monkeypatch.setattr(siteconf, "CVMFS", sites.parent / "no cvmfs")
    everywhere = {f"{SITE}_{place.name}" for place in parts}
    for place in parts:
        named = place if at != "a link" else tmp_path_factory.mktemp("etc") / "local"
        if named != place:
            named.symlink_to(place)
        monkeypatch.setenv("SITECONFIG_PATH", str(named))
        assert written() == [f"{SITE}_{place.name}"]
        assert {each.rse for each in storage.site_volumes(SITE)} == everywhere
    fallback = f'<method volume="Alps" protocol="file"/><method site="{OTHER}" volume="{OTHER}_DISK" protocol="WebDAV"/>'
    configure(parts[0], '<subsite name="Alps"/>', f"<stage-out>{fallback}</stage-out>")
    monkeypatch.setenv("SITECONFIG_PATH", str(parts[0]))
    assert written() == [f"{SITE}_Alps", f"{OTHER}_DISK"]


def test_a_part_with_a_storage_of_its_own_may_write_to_the_sites_as_well(
    subsite: Path, sites: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    describe(sites / SITE, SUBSITE, volume(SITE, [{"protocol": "file", "prefix": "/own"}], volume="OWN", rse="T2_DE_DESY_OWN"))
    methods = '<method volume="OWN" protocol="file"/><method volume="T2_DE_DESY_DISK" protocol="XRootD"/>'
    configure(subsite, f'<subsite name="{SUBSITE}"/><stage-out>{methods}</stage-out>')
    monkeypatch.setenv("SITECONFIG_PATH", str(subsite))
    assert written() == ["T2_DE_DESY_OWN", "T2_DE_DESY_DISK"]


def test_a_pilot_in_a_cloud_may_name_another_sites_directory(sites: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configure(sites / OTHER, f'<stage-out><method volume="{OTHER}_DISK" protocol="WebDAV"/></stage-out>', site=OTHER)
    monkeypatch.setenv("SITECONFIG_PATH", str(sites / OTHER))
    assert written() == ["T1_DE_KIT_DISK"]


def test_a_directory_that_a_pilot_names_and_that_is_not_there_is_told(sites: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SITECONFIG_PATH", "/outside/SITECONF/local")
    with pytest.raises(PayloadError, match="SITECONFIG_PATH=/outside/SITECONF/local is not there") as error:
        storage.site_volumes(SITE)
    assert error.value.code == codes.STORAGE_UNUSABLE
