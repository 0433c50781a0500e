"""Python programs: the MPI is the one that mpi4py would load. A stand-in of mpi4py opens the library it is told to."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import TIMEOUT_S, CommandLine, alive, begun, compile_c, wait_for_ranks, wrapper

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


@pytest.mark.parametrize("when", ["atexit.register(print, 'good bye')", "atexit.register(print, '{}', end='')"])
def test_interpreter_that_prints_at_its_end(
    crosslane: CommandLine, family: str, mpi4py: dict[str, str], tmp_path: Path, when: str
) -> None:
    (tmp_path / "mpi4py" / "__init__.py").write_text(f"{MPI4PY}\nimport atexit\nprint('hello')\n{when}\n")
    done = crosslane.refuse("preload", sys.executable, **mpi4py)
    assert done.status == 0, done.err
    assert f"/libcrosslane_{family}" in done.out


@pytest.mark.parametrize("says", ["", "echo good morning", r"printf '\377\n'"])
def test_interpreter_that_does_not_answer(crosslane: CommandLine, tmp_path: Path, says: str) -> None:
    shim = tmp_path / "python3"
    shim.write_text(f"#!/bin/sh\n{says}\n")
    shim.chmod(0o755)
    done = crosslane("run", "-n", 2, shim, "job.py")
    assert done.status == 2
    assert "did not say which MPI its mpi4py loads" in done.err
    assert "remedy: name the family with --mpi" in done.err
    shim.write_text(f"#!/bin/sh\n{says} >&2\nexit 3\n")
    done = crosslane("run", "-n", 2, shim, "job.py")
    assert done.status == 2
    assert "does not import mpi4py" in done.err


VERSION = """
int MPI_Get_library_version(char* text, int* length) { text[0] = 'M'; text[1] = 0; *length = 1; return 0; }
"""


@pytest.mark.parametrize("name", ["latin\udce9", "a b"])
def test_library_in_a_folder_with_an_unusual_name(crosslane: CommandLine, tmp_path: Path, name: str) -> None:
    library = loaded_by_mpi4py(tmp_path, name, "libmpi.so.12")
    path = f"{tmp_path}:{crosslane.environment['PYTHONPATH']}"
    done = crosslane("run", "-n", 2, sys.executable, "job.py", TEST_LIBMPI=str(library), PYTHONPATH=path)
    assert done.status == 2
    shown = str(library).encode(errors="backslashreplace").decode()
    assert f"no launcher of MPICH (also MVAPICH, Intel MPI) beside {shown}" in done.err


def test_cray_s_library(crosslane: CommandLine, tmp_path: Path) -> None:
    """What Python loads is found by its name, and Crosslane knows others."""
    library = loaded_by_mpi4py(tmp_path, "lib", "libmpi_gnu_91.so.12")
    path = f"{tmp_path}:{crosslane.environment['PYTHONPATH']}"
    done = crosslane.refuse("run", sys.executable, "job.py", TEST_LIBMPI=str(library), PYTHONPATH=path)
    assert done.status == 2
    assert "libmpi_gnu_91.so.12" in done.err
    assert "cray-mpich-abi" in done.err


def loaded_by_mpi4py(tmp_path: Path, name: str, soname: str) -> Path:
    """An MPI in a folder of this name, and an mpi4py that loads what TEST_LIBMPI names."""
    package = tmp_path / "mpi4py"
    package.mkdir()
    (package / "__init__.py").write_text(MPI4PY)
    (package / "MPI.py").write_text(MPI)
    return compile_c(VERSION, tmp_path / name / soname, "-shared", "-fPIC", f"-Wl,-soname,{soname}")


def test_a_signal_ends_the_interpreter_that_is_asked(crosslane: CommandLine, tmp_path: Path) -> None:
    shim = tmp_path / "python3"
    shim.write_text("#!/bin/sh\nwhile :; do sleep 1; done\n")
    shim.chmod(0o755)
    with begun(crosslane.words("preload", shim), crosslane.environment) as process:
        (asked,) = wait_for_ranks(process, 1, "/bin/sh", shim)
        process.send_signal(signal.SIGHUP)
        assert process.wait(timeout=TIMEOUT_S) == 128 + signal.SIGHUP
    assert not alive(asked)
