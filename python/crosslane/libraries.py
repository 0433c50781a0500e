"""Where Crosslane's own files are: the interposed libraries, the emulated driver, the benchmark programs."""

from __future__ import annotations

import os
from pathlib import Path

from crosslane import elf
from crosslane.families import FAMILIES
from crosslane.problem import Problem

HERE = Path(__file__).resolve().parent

#: Endings of the names of a family's libraries, from the one that exports most (tools/generate/exports.py).
LEVELS = ("", "_mpi4", "_mpi4_int", "_mpi3")


def folders() -> list[Path]:
    """Folders that may hold the libraries; first the one that CROSSLANE_PRELOAD (it, or a library in it) names.

    Problem where that does not exist: another folder's libraries would be taken unnoticed.
    """
    found = []
    named = os.environ.get("CROSSLANE_PRELOAD")
    if named:
        path = Path(named).absolute()
        if not path.exists():
            raise Problem(
                f"CROSSLANE_PRELOAD={named} does not exist",
                "set it to the folder that holds the libraries (or to a library in it), or unset it",
            )
        found.append(path if path.is_dir() else path.parent)
    found.append(HERE / "lib")
    if _is_checkout():
        found.append(HERE.parent.parent / "build" / "release" / "lib")
    return found


def interposed(family: str, mpi: Path | None = None) -> Path:
    """The library to preload for a family: the one that exports no procedure that the MPI library `mpi` lacks.

    A program may ask whether its MPI has a procedure, and would find ours.
    """
    name = f"libcrosslane_{family}.so"
    for folder in folders():
        if (folder / name).is_file():
            return _for_mpi(folder, family, mpi) if mpi else folder / name
    searched = ", ".join(map(str, folders()))
    raise Problem(
        f"{name} is in none of {searched}",
        "install the package (pip install .), build the checkout (make build), "
        "or set CROSSLANE_PRELOAD to the folder that holds it",
    )


def _for_mpi(folder: Path, family: str, mpi: Path) -> Path:
    built = [folder / f"libcrosslane_{family}{level}.so" for level in LEVELS]
    try:
        has = elf.exported_names(mpi, "MPI_")
        for path in built:
            if path.is_file() and elf.exported_names(path, "MPI_") <= has:
                return path
    except (OSError, ValueError):
        pass  # who starts the program will say what is wrong with it
    return built[0]  # an MPI that keeps its procedures elsewhere, or lacks some of MPI 3.1


def emulated_driver() -> Path:
    """The emulated libcuda.so.1."""
    for folder in folders():
        path = folder / "emulated" / "libcuda.so.1"
        if path.is_file():
            return path
    searched = ", ".join(str(folder / "emulated") for folder in folders())
    raise Problem(
        f"the emulated driver (libcuda.so.1) is in none of {searched}",
        "install the package or build the checkout (make build), or use --gpus real",
    )


def benchmark(family: str) -> Path:
    """The benchmark program of a family."""
    name = f"crosslane_bench_{family}"
    candidates = [folder.parent / "bin" / name for folder in folders()] + [HERE / "bin" / name]
    for path in candidates:
        if path.is_file():
            return path
    package = {"openmpi": "libopenmpi-dev", "mpich": "libmpich-dev"}[family]
    again = "pip install --force-reinstall --no-deps, from Crosslane's sources"
    if _is_checkout():
        again = f"cmake --preset release && cmake --build build/release --target {name}"
    raise Problem(
        f"the benchmark program {name} is not built: that needs the compiler wrapper (mpicc) of its MPI",
        f"install the wrapper (Debian: {package}; conda, PyPI: with the MPI), have it on the PATH, then: {again}",
    )


def _is_checkout() -> bool:
    return (HERE.parent.parent / "CMakePresets.json").is_file()


def available() -> list[str]:
    """The families whose library exists."""
    return [family for family in FAMILIES if any((f / f"libcrosslane_{family}.so").is_file() for f in folders())]
