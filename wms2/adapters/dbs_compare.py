"""What DBS has of a block, against what it should have. Pure (docs/design/services.md, Writing)."""

from __future__ import annotations

from collections.abc import Sequence

from wms2.adapters.types import BlockInfo, BlockSpec, DbsFile, DbsFileInfo, OutputConfig


def differences(
    wanted: BlockSpec, known: BlockInfo, files: Sequence[DbsFileInfo], configs: Sequence[OutputConfig]
) -> tuple[str, ...]:
    """Each difference in a few words, none if the block is registered as it should be.

    Args:
        known, files: the block and its files, valid or not, as DBS's writer has them.
        configs: those of the wanted block's first file.
    """
    found: list[str] = []
    there = {file.lfn: file for file in files}
    mine = {file.lfn: file for file in wanted.files}
    for word, lfns in (("lacks", mine.keys() - there.keys()), ("also holds", there.keys() - mine.keys())):
        if lfns:
            found.append(f"it {word} {len(lfns)} files, first {min(lfns)}")
    changed = [lfn for lfn in sorted(mine.keys() & there.keys()) if _facts(there[lfn]) != _facts(mine[lfn])]
    if changed:
        first = changed[0]
        found.append(f"{len(changed)} files differ, first {first} with {_words(there[first])}, not {_words(mine[first])}")
    if (known.file_count, known.size_bytes) != (len(wanted.files), wanted.size_bytes):
        counts = f"{known.file_count} files and {known.size_bytes} bytes"
        found.append(f"it counts {counts}, not {len(wanted.files)} and {wanted.size_bytes}")
    if wanted.files[0].lfn in there and wanted.files[0].output_config not in configs:
        others = ", ".join(_config(config) for config in configs) or "none"
        found.append(f"its files' configuration is {others}, not {_config(wanted.files[0].output_config)}")
    return tuple(found)


def _facts(file: DbsFile | DbsFileInfo) -> tuple[int, str, int]:
    return file.size_bytes, file.adler32, file.events


def _words(file: DbsFile | DbsFileInfo) -> str:
    return f"{file.size_bytes} bytes, adler32 {file.adler32}, {file.events} events"


def _config(config: OutputConfig) -> str:
    parts = (config.app_name, config.release_version, config.global_tag, config.pset_hash, config.output_module_label)
    return "/".join(parts)
