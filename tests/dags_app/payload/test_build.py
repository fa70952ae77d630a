"""The zipapp: the same source gives the same bytes, and it needs nothing but Python."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import dags_app.payload
from dags_app.payload.build import build_payload, payload_bytes

SOURCE = Path(dags_app.payload.__file__).parent
MODULES = sorted(path for path in SOURCE.rglob("*.py") if path.parent.name != "programs")


def test_the_same_source_gives_the_same_bytes_wherever_it_is_written(tmp_path: Path) -> None:
    made = set()
    for name in ("one.pyz", "two.pyz"):
        payload_bytes.cache_clear()
        build_payload(tmp_path / name)
        made.add((tmp_path / name).read_bytes())
    assert made == {payload_bytes()}


def test_each_module_lies_beside_its_bytecode_and_another_python_passes_that_over(payload: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.pyz"
    with zipfile.ZipFile(payload) as archive, zipfile.ZipFile(other, "w") as rewritten:
        names = archive.namelist()
        for name in names:
            data = archive.read(name)
            rewritten.writestr(name, b"\0\0\r\n" + data[4:] if name.endswith(".pyc") else data)
    modules = [name for name in names if name.startswith("wms2_payload/") and name.endswith(".py") and "/programs/" not in name]
    assert {f"{name}c" for name in modules} == {name for name in names if name.endswith(".pyc")} != set()
    for file, read in ((payload, ".pyc"), (other, ".py")):
        program = f"import sys; sys.path.insert(0, {str(file)!r}); import wms2_payload.post.post as found; print(found.__file__)"
        done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True)
        assert done.stdout.strip().endswith(f"post/post{read}")


def test_the_zipapp_holds_the_programs_that_run_inside_cmsrun(payload: Path) -> None:
    names = set(zipfile.ZipFile(payload).namelist())
    programs = {
        f"wms2_payload/programs/{name}"
        for name in ("cmssw_tweak.py", "step_pset.py", "merge_pset.py", "plain_content.py", "cmssw_run.sh")
    }
    assert programs < names and "wms2_payload/build.py" not in names


def test_it_loads_nothing_but_the_standard_library(payload: Path) -> None:
    """Every module, in an isolated interpreter without site packages."""
    paths = [path.relative_to(SOURCE).with_suffix("") for path in MODULES if path.stem not in ("__init__", "__main__", "build")]
    names = [".".join(("wms2_payload", *path.parts)) for path in paths]
    assert {"wms2_payload.cli", "wms2_payload.post.post"} < set(names)
    program = (
        f"import sys; sys.path.insert(0, {str(payload)!r})\nfor name in {names}: __import__(name)\nprint(*sorted(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert "wms2_payload" in loaded
    assert loaded - {"wms2_payload", "__main__"} <= set(sys.stdlib_module_names) | {"_distutils_hack", "sitecustomize"}


def test_an_unknown_command_is_refused(payload: Path) -> None:
    done = subprocess.run([str(payload), "frobnicate"], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "invalid choice" in done.stderr
