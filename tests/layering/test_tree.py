"""Holds this tree, and what was built from it, to the rules of the house."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import binaries
import pytest
import rules

INTERPOSED = ("libcrosslane_openmpi.so", "libcrosslane_mpich.so")
LEVELS = ("_mpi4", "_mpi4_int", "_mpi3")  # what libraries for older MPIs export, from most to least


@pytest.mark.parametrize("rule", rules.ALL, ids=lambda rule: rule.__name__)
def test_sources(root: Path, rule: Callable[[Path], Iterator[str]]) -> None:
    violations = list(rule(root))
    assert not violations, f"{rule.__doc__}\n" + "\n".join(violations)


def test_no_writable_globals(build: Path) -> None:
    objects = binaries.library_objects(build)
    assert objects, f"no object file below {build}/src"
    violations = list(binaries.writable_globals(objects))
    assert not violations, "\n".join(violations)


@pytest.mark.parametrize("name", [*INTERPOSED, *(lib.replace(".", f"{lev}.") for lib in INTERPOSED for lev in LEVELS)])
@pytest.mark.parametrize(
    "rule", [binaries.exported_names, binaries.needed_libraries, binaries.missing_flags], ids=lambda rule: rule.__name__
)
def test_interposed_library(build: Path, name: str, rule: Callable[[Path], Iterator[str]]) -> None:
    library = build / "lib" / name
    assert library.exists(), f"{library} is not built"
    violations = list(rule(library))
    assert not violations, "\n".join(violations)


def procedures(library: Path) -> set[str]:
    listing = binaries._output("nm", "--dynamic", "--defined-only", "--format=posix", str(library))
    return {line.split()[0] for line in listing.splitlines() if line.startswith(("MPI_", "PMPI_"))}


@pytest.mark.parametrize("name", INTERPOSED)
def test_levels_export_less_and_less(build: Path, name: str) -> None:
    """Nothing of what each keeps may be lost: what stays unwrapped reaches the CPU path with a device pointer."""
    names = [procedures(build / "lib" / name.replace(".", f"{level}.")) for level in ("", *LEVELS)]
    for more, less in itertools.pairwise(names):
        assert less < more
    assert "MPI_Isendrecv" in names[0] - names[-1]
    assert {"PMPI_Send", "MPI_Send", "MPI_Ialltoallw", "MPI_Neighbor_alltoallw"} <= names[-1]
    assert {name for name in names[0] - names[2] if not name.endswith("_c")} == {
        f"{prefix}MPI_{name}"
        for name in (
            "Comm_attach_buffer",
            "Comm_detach_buffer",
            "Session_attach_buffer",
            "Session_detach_buffer",
            "Request_get_status_all",
            "Request_get_status_any",
            "Request_get_status_some",
        )
        for prefix in ("", "P")
    }


def test_both_libraries_export_the_same_procedures(build: Path) -> None:
    """MPI's own names: what one family wraps and the other does not would reach the CPU path with a device pointer."""
    names = [procedures(build / "lib" / library) for library in INTERPOSED]
    assert "MPI_Allreduce" in names[0]
    assert {name for name in names[0] ^ names[1] if not name.startswith(("MPI_T_", "PMPI_T_"))} == set()
