"""What `cmake --install` leaves in a prefix: a command, and what programs are built with; the prefix may be moved."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import HERE, ROOT, TIMEOUT_S, CommandLine, Result, wrapper

EXAMPLE = ROOT / "examples" / "stream_collectives" / "stream_collectives.c"
PROJECT = HERE / "programs" / "installed"
VERIFIED = "stream_collectives: verified"

IN_CPP = """
#include <crosslane/crosslane.h>
#include <iostream>
int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  std::cout << "rung calls " << crosslane_rung_calls() << std::endl;
  MPI_Finalize();
}
"""


class Installed(CommandLine):
    """The command of a prefix, in an environment that knows nothing of Crosslane."""

    def __init__(self, prefix: Path) -> None:
        super().__init__(prefix)
        del self.environment["CROSSLANE_PRELOAD"], self.environment["PYTHONPATH"]
        self.prefix = prefix
        (lib,) = prefix.glob("lib*")
        self.lib = lib

    def words(self, *arguments: object) -> list[str]:
        return [sys.executable, str(self.prefix / "bin" / "crosslane"), *map(str, arguments)]


def done(*words: object, **variables: str) -> Result:
    """A tool, which must succeed."""
    ran = subprocess.run(
        [str(word) for word in words], env=os.environ | variables, capture_output=True, text=True, check=False,
        stdin=subprocess.DEVNULL, timeout=120,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return Result(ran.returncode, ran.stdout, ran.stderr)


@pytest.fixture(scope="module")
def installed(libraries: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """A prefix that was moved after `cmake --install`."""
    build = libraries.parent
    cmake = shutil.which("cmake")
    if cmake is None or not (build / "cmake_install.cmake").exists():
        pytest.skip("no CMake, or no build to install")
    folder = tmp_path_factory.mktemp("prefix")
    done(cmake, "--install", build, "--prefix", folder / "at first")
    (folder / "at first").rename(folder / "moved")
    return Installed(folder / "moved")


@pytest.fixture(scope="module")
def headers(libraries: Path) -> Path:
    """The folder of cuda.h that the build found; a program of another project has its own way to it."""
    cache = libraries.parent / "CMakeCache.txt"
    for line in cache.read_text().splitlines() if cache.exists() else []:
        name, _, value = line.partition("=")
        if name.startswith("CROSSLANE_CUDA_INCLUDE_DIR:") and (Path(value) / "cuda.h").exists():
            return Path(value)
    pytest.skip("the build was made without CUDA's headers")


def runs(installed: Installed, program: Path, saying: str) -> None:
    """It takes the prefix's library, as it was linked."""
    loaded = [line for line in done("ldd", program).out.splitlines() if "libcrosslane" in line]
    assert loaded, "it is not linked with Crosslane"
    assert all(f"=> {installed.lib}/crosslane/" in line for line in loaded), loaded
    ran = installed("run", "-n", 2, "--gpus", "emulated:2", program)
    assert ran.status == 0, ran.err
    assert saying in ran.out


@pytest.mark.parametrize("language", ["C", "CXX"])
def test_project_that_finds_the_package(
    installed: Installed, headers: Path, family: str, tmp_path: Path, language: str
) -> None:
    compiler = wrapper(family).replace("mpicc", "mpicc" if language == "C" else "mpicxx")
    source = tmp_path / "step.cpp"
    source.write_text(IN_CPP)
    configured = done(
        "cmake", "-S", PROJECT, "-B", tmp_path / "build", f"-DLANGUAGE={language}",
        f"-DSOURCE={EXAMPLE if language == 'C' else source}", f"-DCUDA_HEADERS={headers}",
        f"-DDRIVER={installed.lib}/crosslane/emulated/libcuda.so.1", f"-DCMAKE_PREFIX_PATH={installed.prefix}",
        f"-DMPI_{language}_COMPILER={compiler}",
    )  # fmt: skip
    assert f"family {family}" in configured.out
    done("cmake", "--build", tmp_path / "build")
    runs(installed, tmp_path / "build" / "step", VERIFIED if language == "C" else "rung calls 0")


def test_flags_of_pkg_config(installed: Installed, headers: Path, family: str, tmp_path: Path) -> None:
    if shutil.which("pkg-config") is None:
        pytest.skip("no pkg-config")
    linked = tmp_path / "prefix"  # flags are words: what is between them must not be in them
    linked.symlink_to(installed.prefix)
    asked = ["pkg-config", "--cflags", "--libs", f"crosslane-{family} >= 0.1"]
    flags = done(*asked, PKG_CONFIG_PATH=str(linked / installed.lib.name / "pkgconfig")).out.split()
    driver = installed.lib / "crosslane" / "emulated" / "libcuda.so.1"
    done(wrapper(family), EXAMPLE, f"-I{headers}", *flags, driver, "-o", tmp_path / "step")
    ran = installed("run", "-n", 2, "--gpus", "emulated:2", tmp_path / "step")
    assert ran.status == 0, ran.err
    assert VERIFIED in ran.out


def test_command_takes_what_lies_in_its_prefix(installed: Installed, family: str) -> None:
    preloaded = installed("preload", "--mpi", family)
    assert preloaded.out.strip() == f"{installed.lib}/crosslane/libcrosslane_{family}.so", preloaded.err
    wrapper(family)
    measured = installed("bench", "allreduce", "-n", 2, "--mpi", family, "--sizes", 8, "--gpus", "emulated:2")
    assert measured.status == 0, measured.err
    assert "allreduce" in measured.out


def test_interpreter_that_lacks_what_the_command_needs(installed: Installed) -> None:
    ran = subprocess.run(
        [sys.executable, "-S", installed.prefix / "bin" / "crosslane"], env=installed.environment, text=True,
        capture_output=True, check=False, stdin=subprocess.DEVNULL, timeout=TIMEOUT_S,
    )  # fmt: skip
    assert ran.returncode == 2
    assert "does not have typer" in ran.stderr
    assert "remedy:" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_licence_is_installed(installed: Installed) -> None:
    (licence,) = installed.prefix.glob("share/doc/*/LICENSE")
    assert licence.read_text() == (ROOT / "LICENSE").read_text()
