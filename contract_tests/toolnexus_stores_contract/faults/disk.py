"""What was on the disk before: noted when it is about to change, and put back."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import final

__all__ = ["Before", "Entry", "look", "put"]


@final
@dataclass(frozen=True, slots=True)
class Entry:
    """A file with its bytes, or a directory."""

    mode: int
    data: bytes | None
    """None for a directory."""


def look(path: str) -> Entry | None:
    """What is at *path*; None for nothing, and for what is neither file nor directory."""
    try:
        mode = os.lstat(path).st_mode
        kind, permissions = mode & 0o170000, mode & 0o7777
        if kind == 0o040000:
            return Entry(permissions, None)
        return Entry(permissions, Path(path).read_bytes()) if kind == 0o100000 else None
    except (FileNotFoundError, NotADirectoryError):
        return None


def put(path: str, entry: Entry | None) -> None:
    """Have *entry* at *path*, whatever is there. A file is a new one, not the old one rewritten.

    So that whoever still has the old file open goes on with that.
    """
    place = Path(path)
    if look(path) == entry:
        return
    if place.is_dir() and not place.is_symlink():
        if entry is not None and entry.data is None:
            place.chmod(entry.mode)
            return
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)
    if entry is None:
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    if entry.data is None:
        place.mkdir()
    else:
        place.write_bytes(entry.data)
    place.chmod(entry.mode)


@final
class Before:
    """What was at each path before a victim first touched it.

    Only what was noted is ever put back, so that files which a victim did not touch stay as they
    are, whoever they belong to.
    """

    def __init__(self) -> None:
        self.entries: dict[str, Entry | None] = {}

    def note(self, path: str) -> None:
        """*path* is about to change, for the first time if it is not known yet."""
        if path not in self.entries:
            self.entries[path] = look(path)

    def restore(self) -> None:
        """Put everything back. No process may have any of it open."""
        for path, entry in sorted(self.entries.items(), reverse=True):  # what is inside goes first
            if entry is None:
                put(path, None)
        for path, entry in sorted(self.entries.items()):
            if entry is not None:
                put(path, entry)
