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
    """Folders that may hold the libraries: the one that CROSSLANE_PRELOAD names, else the package's and the checkout's.

    Where it is set, it alone counts: another build's libraries would be taken, or mixed in, unnoticed.
    """
    named = _named_folder()
    return [named] if named else _own_folders()


def _named_folder() -> Path | None:
    """The folder that CROSSLANE_PRELOAD (it, or a library in it) names; Problem where that does not exist."""
    named = os.environ.get("CROSSLANE_PRELOAD")
    if not named:
        return None
    path = Path(named).absolute()
    if not path.exists():
        raise Problem(
            f"CROSSLANE_PRELOAD={named} does not exist",
            "set it to the folder that holds the libraries (or to a library in it), or unset it",
        )
    return path if path.is_dir() else path.parent


def _own_folders() -> list[Path]:
    """The package's (pip), the checkout's build, or that which cmake --install puts `python/crosslane` in."""
    above = HERE.parent.parent
    found = [HERE / "lib"]
    if _is_checkout():
        found.append(above / "build" / "release" / "lib")
    elif any(above.glob("libcrosslane_*.so")):
        found.append(above)
    return found


def _find(file: str, what: str, remedy: str) -> Path:
    """A file of the libraries' folder; Problem where there is none, with the remedy where no folder was named."""
    searched = folders()
    for folder in searched:
        if (folder / file).is_file():
            return folder / file
    named = os.environ.get("CROSSLANE_PRELOAD")
    if named:
        # cmake --install has them one folder further down.
        inside = next((one for one in (searched[0] / "crosslane", searched[0] / "lib") if (one / file).is_file()), None)
        raise Problem(
            f"CROSSLANE_PRELOAD={named}: {searched[0]} does not hold {what}",
            f"set it to {inside}"
            if inside
            else "set it to the folder that holds all libraries of one build, or unset it",
        )
    raise Problem(f"{what} is in none of {', '.join(map(str, searched))}", remedy)


def interposed(family: str, mpi: Path | None = None) -> Path:
    """The library to preload for a family: the one that exports no procedure that the MPI library `mpi` lacks.

    A program may ask whether its MPI has a procedure, and would find ours.
    """
    name = f"libcrosslane_{family}.so"
    path = _find(
        name,
        name,
        "install the package (pip install .), build the checkout (make build), "
        "or set CROSSLANE_PRELOAD to the folder that holds it",
    )
    return _for_mpi(path.parent, family, mpi) if mpi else path


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
    return _find(
        "emulated/libcuda.so.1",
        "the emulated driver (emulated/libcuda.so.1)",
        "install the package or build the checkout (make build), or use --gpus real",
    )


def benchmark(family: str) -> Path:
    """The benchmark program of a family: of any build, as it takes the library that is preloaded."""
    name = f"crosslane_bench_{family}"
    searched = [*folders(), *_own_folders()]
    candidates = [folder / "bin" for one in searched for folder in (one.parent, one)] + [HERE / "bin"]
    for path in (folder / name for folder in candidates):
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
