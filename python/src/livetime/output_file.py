"""Files in the making, and files that no export and no import replaces, whatever it is told.

What is written lies beside its final name in a file of its own, `.livetime-*.part`, and gets that name
when it is whole. Only a plain file gives way to it, and only where that is asked for; what is read
here, and the files of runs, never do.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import stat
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Iterator, Optional, Sequence

#: How every run file begins.
_RUN_FILE = b"\x89MCAP0\r\n"
#: What lies beside the run files in a run directory.
_DOCUMENTS = ("config.toml", "filter.py", "histograms.json", "report.html", "summary.json")

#: What can be under a name besides a plain file.
_KINDS = {
    stat.S_IFBLK: "a block device",
    stat.S_IFCHR: "a character device",
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFLNK: "a link",
    stat.S_IFSOCK: "a socket",
}


@contextmanager
def in_the_making(
    targets: Sequence[Path],
    inputs: Sequence[Path],
    *,
    overwrite: bool,
    refused: type[ValueError],
) -> Iterator[list[Path]]:
    """Where to write what becomes `targets`; the names are theirs when the block ends without an error.

    A link to a plain file stays, and the file that it leads to is replaced. `inputs` are the files that
    are read. Raises FileExistsError for a target that is there, also one that appears meanwhile, unless
    `overwrite` is set, and `refused` for one that is never replaced.
    """
    for target in targets:
        _check(target, inputs, overwrite, refused)
    ends = [target.resolve() if target.is_symlink() else target for target in targets]
    if len(set(ends)) < len(ends):
        raise refused(f"{targets[1]} and {targets[0]} are the same file; other names are expected")
    parts: list[_Part] = []
    try:
        for end in ends:
            parts.append(_Part(end))
        yield [part.writable for part in parts]
        with _turn(ends):
            for end in ends:
                _check(end, inputs, overwrite, refused)
            _publish(parts, overwrite)
    finally:
        for part in parts:
            part.remove()


def _check(
    target: Path, inputs: Sequence[Path], overwrite: bool, refused: type[ValueError]
) -> None:
    kind = _other_than_plain(target)
    if kind is None and target.exists() and not overwrite:
        raise _is_there(target)
    kept = f"is {kind}" if kind is not None else _reason_to_keep(target, inputs)
    if kept is not None:
        raise refused(f"{target} {kept} and is not replaced; another name is expected")


def _is_there(target: Path) -> FileExistsError:
    return FileExistsError(f"{target} is there already; ask for overwrite or another name")


def _other_than_plain(target: Path) -> Optional[str]:
    """What is under a name, or where a link leads, if it is there and no plain file."""
    try:
        mode = target.stat().st_mode
    except FileNotFoundError:
        return "a link to nothing" if target.is_symlink() else None
    return None if stat.S_ISREG(mode) else _KINDS.get(stat.S_IFMT(mode), "no plain file")


def _reason_to_keep(target: Path, inputs: Sequence[Path]) -> Optional[str]:
    """Why a plain file that is there must stay as it is; None if it may be replaced. An input under
    another name is found as well."""
    if not target.is_file():
        return None
    if any(one.is_file() and target.samefile(one) for one in inputs):
        return "is a file that is read here"
    with target.open("rb") as file:
        if file.read(len(_RUN_FILE)) == _RUN_FILE:
            return "is a run file"
    if target.name in _DOCUMENTS and any(target.parent.glob("events*.mcap")):
        return "belongs to the run in its directory"
    return None


class _Part:
    """A file of our own beside the final name `end`."""

    def __init__(self, end: Path) -> None:
        self.end = end
        # Not made of the final name, which may be as long as a name can be.
        self._path = end.with_name(f".livetime-{secrets.token_hex(8)}.part")
        try:
            # Never what is there already, nor what a link leads to.
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            self._descriptor = os.open(self._path, flags, 0o666)
        except OSError as error:
            error.filename = os.fspath(end)
            raise
        #: The file itself, whatever its name, which not every library can take.
        self.writable = Path(f"/proc/self/fd/{self._descriptor}")

    def replace(self) -> None:
        """Takes the final name; a file that has it gives way."""
        os.replace(self._path, self.end)

    def appear(self) -> None:
        """Takes the final name, unless something has it."""
        try:
            os.link(self._path, self.end)
        except FileExistsError:
            raise _is_there(self.end) from None
        except OSError:
            self._appear_without_links()

    def _appear_without_links(self) -> None:
        # Not every file system can give a file two names: then an empty file keeps the name.
        try:
            keeper = os.open(self.end, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        except FileExistsError:
            raise _is_there(self.end) from None
        try:
            self.replace()
        except BaseException:
            # Unless another has taken the name meanwhile.
            with suppress(OSError):
                if os.path.samestat(os.fstat(keeper), os.lstat(self.end)):
                    self.end.unlink()
            raise
        finally:
            os.close(keeper)

    def remove(self) -> None:
        """Takes away what has not got its name."""
        os.close(self._descriptor)
        self._path.unlink(missing_ok=True)


def _publish(parts: Sequence[_Part], overwrite: bool) -> None:
    """Gives all parts their names, or none where nothing is replaced."""
    done: list[_Part] = []
    try:
        for part in parts:
            if overwrite:
                part.replace()
            else:
                part.appear()
                done.append(part)
    except BaseException:
        for part in done:
            part.end.unlink(missing_ok=True)
        raise


@contextmanager
def _turn(ends: Sequence[Path]) -> Iterator[None]:
    """Holds the lock of the folder while several files get their names, so that of two exports at once
    the files of one do not come among those of the other."""
    folder: Optional[int] = None
    try:
        # Where there are no locks it goes without.
        with suppress(OSError):
            if len(ends) > 1:
                folder = os.open(ends[0].parent, os.O_RDONLY | os.O_DIRECTORY)
                fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        if folder is not None:
            os.close(folder)
