"""The rules of the house that can be read off what was built, with binutils: globals, exported and needed names."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from rules import rows

# Not objects of ours: exception tables, vtable pointers that the loader writes, the linker's own marks.
_BOOKKEEPING = re.compile(r"^(DW\.ref\.|guard variable for |__dso_handle$|_GLOBAL_OFFSET_TABLE_$|\.)")
_WRITABLE = re.compile(r"^(\*?COM\*?|COMMON|\.[tb]?bss|\.t?data|\.l?(bss|data)\.?)(\.|$)")
_READ_ONLY = re.compile(r"^\.data\.rel\.ro|^\.rodata")

EXPORTED = re.compile(r"^(P?MPIX?_[A-Z]\w*|crosslane_\w+)$")
NEEDED = re.compile(r"^(libc|libm|libdl|libpthread|librt)\.so\.\d+$|^ld-linux-x86-64\.so\.\d+$")


def _output(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def library_objects(build: Path) -> list[Path]:
    """The object files of the library itself: all of src/ but the emulated driver, which is a machine of its own."""
    return [
        path
        for path in sorted((build / "src").rglob("*.o"))
        if "emulated" not in path.relative_to(build).as_posix() and "CMakeScratch" not in path.parts
    ]


def writable_globals(objects: list[Path], allowed: list[list[str]] | None = None) -> Iterator[str]:
    """Writable objects with static or thread storage, but for the rows of globals.txt."""
    patterns = [re.compile(row[0]) for row in (rows("globals.txt") if allowed is None else allowed)]
    for file in objects:
        for line in _output("nm", "--format=sysv", "--demangle", "--defined-only", str(file)).splitlines():
            columns = line.rsplit("|", 6)
            if len(columns) != 7:
                continue
            name, kind, section = columns[0].strip(), columns[3].strip(), columns[6].strip()
            if kind not in {"OBJECT", "TLS"} or _READ_ONLY.match(section) or not _WRITABLE.match(section):
                continue
            if _BOOKKEEPING.match(name) or any(pattern.search(name) for pattern in patterns):
                continue
            storage = "thread-local" if kind == "TLS" else "global"
            yield f"{file.name}: writable {storage} object {name} ({section}): state belongs to the rank's Process"


def exported_names(library: Path) -> Iterator[str]:
    """What an interposed library defines for others, beyond MPI's names and crosslane_*."""
    for line in _output("nm", "--dynamic", "--defined-only", "--format=posix", str(library)).splitlines():
        name = line.split()[0].split("@")[0]
        if not EXPORTED.match(name):
            yield f"{library.name}: exports {name}"


def needed_libraries(library: Path) -> Iterator[str]:
    """What an interposed library asks the loader for, beyond the C library."""
    for name in re.findall(r"\(NEEDED\).*\[(.+)\]", _output("readelf", "--dynamic", "--wide", str(library))):
        if not NEEDED.match(name):
            yield f"{library.name}: needs {name}"


def missing_flags(library: Path) -> Iterator[str]:
    """An interposed library is never unloaded: its threads and handlers outlive a dlclose."""
    if "NODELETE" not in _output("readelf", "--dynamic", "--wide", str(library)):
        yield f"{library.name}: is not linked with -z nodelete"
