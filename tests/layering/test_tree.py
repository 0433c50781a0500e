"""Holds this tree, and what was built from it, to the rules of the house."""

from collections.abc import Callable, Iterator
from pathlib import Path

import binaries
import pytest
import rules

INTERPOSED = ("libcrosslane_openmpi.so", "libcrosslane_mpich.so")


@pytest.mark.parametrize("rule", rules.ALL, ids=lambda rule: rule.__name__)
def test_sources(root: Path, rule: Callable[[Path], Iterator[str]]) -> None:
    violations = list(rule(root))
    assert not violations, f"{rule.__doc__}\n" + "\n".join(violations)


def test_no_writable_globals(build: Path) -> None:
    objects = binaries.library_objects(build)
    assert objects, f"no object file below {build}/src"
    violations = list(binaries.writable_globals(objects))
    assert not violations, "\n".join(violations)


@pytest.mark.parametrize("name", INTERPOSED)
@pytest.mark.parametrize(
    "rule", [binaries.exported_names, binaries.needed_libraries, binaries.missing_flags], ids=lambda rule: rule.__name__
)
def test_interposed_library(build: Path, name: str, rule: Callable[[Path], Iterator[str]]) -> None:
    library = build / "lib" / name
    assert library.exists(), f"{library} is not built"
    violations = list(rule(library))
    assert not violations, "\n".join(violations)


def test_both_libraries_export_the_same_procedures(build: Path) -> None:
    """MPI's own names: what one family wraps and the other does not would reach the CPU path with a device pointer."""
    names = []
    for library in INTERPOSED:
        listing = binaries._output("nm", "--dynamic", "--defined-only", "--format=posix", str(build / "lib" / library))
        names.append({line.split()[0] for line in listing.splitlines() if line.startswith(("MPI_", "PMPI_"))})
    assert "MPI_Allreduce" in names[0]
    assert {name for name in names[0] ^ names[1] if not name.startswith(("MPI_T_", "PMPI_T_"))} == set()
