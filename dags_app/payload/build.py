"""Packs this package into the zipapp ``wms2_payload.pyz``. Owns its layout; the same source gives the same bytes.

The file begins with ``launch.sh``, which finds a Python for the zipapp behind it. Inside, the package is called
``wms2_payload``: on a worker node there is no ``dags_app``. Not itself part of the zipapp.

Beside each module lies its bytecode, by the Python that builds: that Python need not compile it at each start (a POST script does
little else). Another version passes it over and takes the source; none compares it with the source, as the zipapp is one file.
"""

from __future__ import annotations

import importlib.util
import io
import marshal
import os
import zipfile
from functools import cache
from pathlib import Path

PACKAGE = "wms2_payload"

_MAIN = f"import sys\n\nfrom {PACKAGE}.cli import main\n\nsys.exit(main())\n"
_LAUNCHER = "launch.sh"
_EXCLUDED = {"build.py", "__main__.py", _LAUNCHER}
_SUFFIXES = {".py", ".sh"}
#: Programs that are not imported but read by another Python, that of the release.
_RUN_ELSEWHERE = "programs/"
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the oldest time a zip file can hold


@cache
def payload_bytes() -> bytes:
    """The zipapp's bytes, made once in a process: every module and program of this package by name, without times."""
    source = Path(__file__).parent
    buffer = io.BytesIO((source / _LAUNCHER).read_bytes())
    buffer.seek(0, io.SEEK_END)
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        _add(archive, "__main__.py", _MAIN.encode())
        for path in sorted(source.rglob("*.*")):
            name = path.relative_to(source).as_posix()
            if path.suffix in _SUFFIXES and name not in _EXCLUDED:
                content = path.read_bytes()
                _add(archive, f"{PACKAGE}/{name}", content)
                if path.suffix == ".py" and not name.startswith(_RUN_ELSEWHERE):
                    # never compared with its source (PEP 552: flags 1, then a hash of the source)
                    head = importlib.util.MAGIC_NUMBER + (1).to_bytes(4, "little") + importlib.util.source_hash(content)
                    code = compile(content, f"{PACKAGE}/{name}", "exec", dont_inherit=True, optimize=0)
                    _add(archive, f"{PACKAGE}/{name}c", head + marshal.dumps(code))
    return buffer.getvalue()


def build_payload(target: Path) -> None:
    """Write the executable zipapp to ``target``, replaced whole."""
    part = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    part.write_bytes(payload_bytes())
    part.chmod(0o755)
    part.replace(target)


def _add(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    entry = zipfile.ZipInfo(name, _EPOCH)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o100644 << 16
    entry.create_system = 3
    archive.writestr(entry, data)
