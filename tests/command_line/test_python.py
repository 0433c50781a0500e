"""Python programs: the MPI is the one that mpi4py would load. A stand-in of mpi4py opens the library it is told to."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import CommandLine, wrapper

MPI4PY = """
import ctypes, os
class rc:
    initialize = True
    finalize = True
"""
MPI = """
import ctypes, os
import mpi4py
_library = ctypes.CDLL(os.environ["TEST_LIBMPI"], mode=ctypes.RTLD_LOCAL)
if mpi4py.rc.initialize:
    raise RuntimeError("asked to initialize MPI")
def Get_library_version():
    text = ctypes.create_string_buffer(8192)
    _library.MPI_Get_library_version(text, ctypes.byref(ctypes.c_int()))
    return text.value.decode()
"""
PRINT = "import os; print(os.environ['LD_PRELOAD'])"


@pytest.fixture
def mpi4py(tmp_path: Path, family: str, program: Path, crosslane: CommandLine) -> dict[str, str]:
    """The environment in which mpi4py is of this family."""
    wrapper(family)
    package = tmp_path / "mpi4py"
    package.mkdir()
    (package / "__init__.py").write_text(MPI4PY)
    (package / "MPI.py").write_text(MPI)
    listing = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=True).stdout
    library = next(
        line.split()[2] for line in listing.splitlines() if line.split()[0].startswith(("libmpi.", "libmpich."))
    )
    return {"TEST_LIBMPI": library, "PYTHONPATH": f"{tmp_path}:{crosslane.environment['PYTHONPATH']}"}


def test_interpreter(crosslane: CommandLine, family: str, mpi4py: dict[str, str]) -> None:
    done = crosslane("run", "-n", 2, "--", sys.executable, "-c", PRINT, **mpi4py)
    assert done.status == 0, done.err
    assert done.out.count(f"/libcrosslane_{family}") == 2


def test_script(crosslane: CommandLine, family: str, mpi4py: dict[str, str], tmp_path: Path) -> None:
    script = tmp_path / "job"
    script.write_text(f"#!/usr/bin/env {Path(sys.executable).name}\n{PRINT}\n")
    script.chmod(0o755)
    path = f"{Path(sys.executable).parent}:{crosslane.environment['PATH']}"
    done = crosslane("run", script, PATH=path, **mpi4py)
    assert done.status == 0, done.err
    assert f"/libcrosslane_{family}" in done.out


def test_interpreter_behind_a_shim(crosslane: CommandLine, family: str, mpi4py: dict[str, str], tmp_path: Path) -> None:
    shim = tmp_path / "python3"
    shim.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    shim.chmod(0o755)
    done = crosslane("run", shim, "-c", PRINT, **mpi4py)
    assert done.status == 0, done.err
    assert f"/libcrosslane_{family}" in done.out


def test_library_that_is_also_preloaded_does_not_mislead(
    crosslane: CommandLine, family: str, mpi4py: dict[str, str]
) -> None:
    """A library of the other family in LD_PRELOAD must not be what mpi4py is asked with."""
    other = "mpich" if family == "openmpi" else "openmpi"
    mpirun = shutil.which(f"mpirun.{other}")
    if mpirun is None:
        pytest.skip("only one MPI is installed")
    listing = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=False).stdout
    soname = "libmpich.so.12" if other == "mpich" else "libmpi.so.40"
    foreign = next((line.split()[-1] for line in listing.splitlines() if line.split()[:1] == [soname]), None)
    if foreign is None:
        pytest.skip("the other MPI's library is not in the loader's cache")
    done = crosslane("preload", sys.executable, LD_PRELOAD=foreign, **mpi4py)
    assert f"/libcrosslane_{family}" in done.out, done.err
