"""What an ELF file needs and defines, read from the file and from its own dynamic loader; nothing of it is run."""

from __future__ import annotations

import mmap
import os
import re
import struct
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

PT_DYNAMIC, PT_INTERP = 2, 3
SHT_SYMTAB, SHT_DYNSYM = 2, 11


@dataclass
class Elf:
    """An executable: its loader ("" if statically linked) and whether it defines MPI_Init itself."""

    path: Path
    interpreter: str = ""
    dynamic: bool = False
    defines_mpi: bool = False


@dataclass
class Closure:
    """The libraries that the loader would map: name as asked for → path ("" where it is not found)."""

    libraries: dict[str, str] = field(default_factory=dict)
    error: str = ""


def is_elf(path: Path) -> bool:
    """True if the file starts as an ELF file does."""
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def read(path: Path) -> Elf:
    """Reads the program headers, and the symbol tables for MPI_Init. Raises ValueError where the file is malformed."""
    elf = Elf(path)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        try:
            _read_headers(elf, data)
        except (struct.error, IndexError) as error:
            raise ValueError(f"malformed ELF file: {error}") from error
    return elf


def exported_names(path: Path, prefix: str) -> frozenset[str]:
    """The names with this prefix that a library exports; ValueError where the file is malformed."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        try:
            layout, sections = _sections(data)
            names: set[str] = set()
            for kind, offset, length, link in sections:
                if kind == SHT_DYNSYM:
                    names |= _defined(layout, (offset, length), sections[link][1], prefix.encode())
        except (struct.error, IndexError) as error:
            raise ValueError(f"malformed ELF file: {error}") from error
    return frozenset(names)


def _defined(file: _Layout, table: tuple[int, int], names_at: int, prefix: bytes) -> set[str]:
    """The names with the prefix that a symbol table (offset, bytes) defines."""
    found = set()
    size = 24 if file.wide else 16
    for start in range(table[0], table[0] + table[1] - size + 1, size):
        (name,) = file.at("I", start)
        (section,) = file.at("H", start + (6 if file.wide else 14))
        at = names_at + name
        if section != 0 and file.data[at : at + len(prefix)] == prefix:
            found.add(file.data[at : file.data.find(b"\0", at)].decode())
    return found


def _read_headers(elf: Elf, data: mmap.mmap) -> None:
    layout, sections = _sections(data)
    # e_phoff, then after e_flags and e_ehsize: e_phentsize, e_phnum.
    (segments_at,) = layout.at("Q" if layout.wide else "I", 32 if layout.wide else 28)
    segment_size, segment_count = layout.at("HH", 54 if layout.wide else 42)
    for index in range(segment_count):
        start = segments_at + index * segment_size
        (kind,) = layout.at("I", start)
        offset, _, _, length = layout.at("QQQQ" if layout.wide else "IIII", start + (8 if layout.wide else 4))
        if kind == PT_DYNAMIC:
            elf.dynamic = True
        elif kind == PT_INTERP:
            elf.interpreter = os.fsdecode(data[offset : offset + length].rstrip(b"\0"))
    for kind, offset, length, link in sections:
        if kind in {SHT_SYMTAB, SHT_DYNSYM} and link < len(sections):
            elf.defines_mpi |= _defines_mpi(layout, (offset, length), sections[link][1:3])
    if not elf.dynamic and not elf.defines_mpi:
        # A stripped static program has no symbols left; MPI's own error messages still name the procedure.
        elf.defines_mpi = data.find(b"MPI_Init\0") >= 0


def _sections(data: mmap.mmap) -> tuple[_Layout, list[tuple[int, int, int, int]]]:
    """How the file is laid out, and its sections: kind, offset, bytes, linked section."""
    layout = _Layout(data, "<" if data[5] == 1 else ">", data[4] == 2)
    (sections_at,) = layout.at("Q" if layout.wide else "I", 40 if layout.wide else 32)
    section_size, section_count = layout.at("HH", 58 if layout.wide else 46)
    sections = []
    for index in range(section_count):
        start = sections_at + index * section_size
        (kind,) = layout.at("I", start + 4)
        offset, length, link = layout.at("QQI" if layout.wide else "III", start + (24 if layout.wide else 16))
        sections.append((kind, offset, length, link))
    return layout, sections


@dataclass(frozen=True)
class _Layout:
    """A file's bytes, their order, and whether it is of the 64-bit kind."""

    data: mmap.mmap
    order: str
    wide: bool

    def at(self, kinds: str, offset: int) -> tuple[int, ...]:
        """Numbers of these kinds, as struct names them, from an offset on."""
        return struct.unpack_from(self.order + kinds, self.data, offset)


def _defines_mpi(file: _Layout, table: tuple[int, int], names: tuple[int, int]) -> bool:
    """True if the symbol table (offset, bytes) with these names has a definition of MPI_Init."""
    found = file.data.find(b"\0MPI_Init\0", names[0], names[0] + names[1])
    if found < 0:
        return False
    name = found + 1 - names[0]
    size = 24 if file.wide else 16
    for start in range(table[0], table[0] + table[1] - size + 1, size):
        if file.at("I", start)[0] == name:
            (section,) = file.at("H", start + (6 if file.wide else 14))
            if section != 0:  # SHN_UNDEF: asked for, not defined
                return True
    return False


def closure(elf: Elf, environment: dict[str, str] | None = None) -> Closure:
    """What the program's own loader would map for it in `environment`; it lists, the program does not run."""
    environment = dict(os.environ if environment is None else environment)
    environment.pop("LD_PRELOAD", None)  # ours may name a library for another family
    # As ldd does: --list ends at the first library that is missing. Others than glibc's loader know --list alone.
    if Path(elf.interpreter).name.startswith(("ld-linux", "ld64.so", "ld.so")):
        environment["LD_TRACE_LOADED_OBJECTS"] = "1"
        listing_option = []
    else:
        listing_option = ["--list"]
    try:
        listing = subprocess.run(
            [elf.interpreter, *listing_option, str(elf.path)],
            env=environment, capture_output=True, timeout=60, check=False,
        )  # fmt: skip
    except OSError as error:
        return Closure(error=f"its loader {elf.interpreter} cannot run: {error.strerror}")
    except subprocess.TimeoutExpired:
        return Closure(error=f"its loader {elf.interpreter} does not answer")
    result = Closure()
    for line in os.fsdecode(listing.stdout).split("\n"):  # paths: any bytes, blanks among them
        match = re.match(r"^\s*(.+?) => (?:(not found)|(.+) \(0x[0-9a-f]+\))$", line)
        if match:
            result.libraries[Path(match[1]).name] = "" if match[2] else match[3]
        elif plain := re.match(r"^\s*(/.+) \(0x[0-9a-f]+\)$", line):  # needed by its path, or already the loader
            result.libraries[Path(plain[1]).name] = plain[1]
    if listing.returncode != 0 and not result.libraries:
        result.error = os.fsdecode(listing.stderr or listing.stdout).strip() or f"{elf.interpreter} failed"
    return result
