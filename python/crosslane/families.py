"""The ABI families of MPI that Crosslane is built for, and how a library or a launcher tells which one it is."""

from __future__ import annotations

import re

FAMILIES = ("openmpi", "mpich")

#: How the families are called in messages.
TITLES = {"openmpi": "Open MPI", "mpich": "MPICH (also MVAPICH, Intel MPI)"}

#: Cray's is named after the compiler that it is for: libmpi_cray.so.12, libmpi_gnu_91.so.12.
_CRAY = r"mpi_(?:amd|aocc|cray|crayclang|gnu|intel|nvidia|pgi)(?:_\d+)*"
_MPI_LIBRARY = re.compile(rf"^lib(?:mpi|mpich|mpi_abi|{_CRAY})\.so(?:\.(\d+)[\d.]*)?$")


def is_mpi_library(name: str) -> bool:
    """True if `name` (a soname or a file's name) is that of an MPI library itself, not of its Fortran or C++ layers."""
    return _MPI_LIBRARY.match(name) is not None


def family_of_library(name: str) -> str | None:
    """The family that an MPI library's name stands for; None where Crosslane has no library for it."""
    match = _MPI_LIBRARY.match(name)
    if match is None or name.startswith("libmpi_abi"):
        return None
    if match[1] == "40" and name.startswith("libmpi.so"):
        return "openmpi"
    return "mpich" if match[1] == "12" else None


def is_cray(name: str) -> bool:
    """True if `name` is that of Cray MPICH's library."""
    return re.match(rf"lib{_CRAY}\.so", name) is not None


def family_of_version(text: str) -> str | None:
    """The family that MPI_Get_library_version's text, or a launcher's --version, names."""
    if re.search(r"Open MPI|OpenRTE|PRRTE|PRTE|Open RTE", text):
        return "openmpi"
    if re.search(r"HYDRA|MPICH|MVAPICH|Intel\(R\) MPI", text):
        return "mpich"
    return None
