"""What makes one stack itself: its instance id and its secrets. Generated once per state, mode 600, never in the repository."""

from __future__ import annotations

import json
import os
import secrets
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from deploy.stack.errors import StackError

IDENTITY_FILE = "identity.json"


@dataclass(frozen=True, slots=True)
class Identity:
    """``instance`` is stamped on every job; the key is secret. Rucio's passwords are kept by ``deploy/rucio``."""

    instance: str
    django_secret_key: str


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, replacing it whole, so that half of one is never read."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
        stream.write(text)
    temporary.replace(path)


def load(kind: str, kind_directory: Path) -> Identity:
    """The stack's identity, made at its first start."""
    path = kind_directory / IDENTITY_FILE
    if not path.exists():
        new = Identity(instance=f"{kind}-{secrets.token_hex(2)}", django_secret_key=secrets.token_urlsafe(64))
        write_private(path, json.dumps(asdict(new), indent=2) + "\n")
    values = json.loads(path.read_text())
    try:
        return Identity(**{field.name: str(values[field.name]) for field in fields(Identity)})
    except KeyError as missing:
        raise StackError(f"{path} lacks {missing}: remove the state with `make clean-state` and start again") from None
