"""What cannot work is said before anything starts, with its remedy and a status of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, TIMEOUT_S, CommandLine, Result, compile_c
from crosslane import elf

PLAIN = "int main(void) { return 0; }"
CALLS = "int MPI_Init(int*, char***); int main(void) { return MPI_Init(0, 0); }"
DEFINES = "int MPI_Init(int* count, char*** words) { return count == 0 || words == 0; }"


def refused(done: Result, status: int, *words: str) -> None:
    """The message names all words and ends with a remedy; nothing ran."""
    assert done.status == status, done.err
    assert done.out == ""
    assert "remedy:" in done.err
    assert "Traceback" not in done.err
    for word in words:
        assert word in done.err


def fake_mpi(prefix: Path, soname: str) -> Path:
    """A program and the MPI that it links, in a prefix that has no launcher."""
    library = compile_c(DEFINES, prefix / "lib" / soname, "-shared", "-fPIC", f"-Wl,-soname,{soname}")
    return compile_c(CALLS, prefix / "program", str(library), f"-Wl,-rpath,{library.parent}")


def test_program_without_mpi(crosslane: CommandLine, tmp_path: Path) -> None:
    program = compile_c(PLAIN, tmp_path / "plain")
    refused(crosslane.refuse("run", "-n", 2, program), 2, "plain does not use MPI", "--mpi", "dlsym")


def test_static_program(crosslane: CommandLine, tmp_path: Path) -> None:
    program = compile_c(PLAIN, tmp_path / "static", "-static")
    refused(crosslane.refuse("run", program), 2, "statically linked", "-static")
    # Naming the family would not help.
    refused(crosslane.refuse("run", "--mpi", "openmpi", program), 2, "statically linked")


@pytest.mark.parametrize("options", [["-static"], ["-static", "-s"], []])
def test_static_mpi(crosslane: CommandLine, tmp_path: Path, options: list[str]) -> None:
    text = f'{DEFINES} int puts(const char*); int main(void) {{ puts("MPI_Init"); return MPI_Init(0, 0); }}'
    program = compile_c(text, tmp_path / "whole", *options)
    refused(crosslane.refuse("run", program), 2, "whole", "MPI", "shared library")


def test_program_that_does_not_exist(crosslane: CommandLine) -> None:
    refused(crosslane.refuse("run", "-n", 2, "./no-such-program"), 127, "not found", "no-such-program")


def test_program_in_this_folder_but_not_on_the_path(crosslane: CommandLine, tmp_path: Path) -> None:
    compile_c(PLAIN, tmp_path / "here_only")
    done = subprocess.run(
        crosslane.words("run", "here_only"), env=crosslane.environment, cwd=tmp_path, text=True, capture_output=True,
        check=False, timeout=TIMEOUT_S,
    )  # fmt: skip
    refused(Result(done.returncode, done.stdout, done.stderr), 127, "./here_only")


def test_file_that_is_not_executable(crosslane: CommandLine, tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text("print()")
    refused(crosslane.refuse("run", script), 126, "not executable", "python")


def test_script_that_hides_its_mpi(crosslane: CommandLine, tmp_path: Path) -> None:
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/sh\necho $LD_PRELOAD\n")
    script.chmod(0o755)
    refused(crosslane.refuse("run", script), 2, "job.sh is a script", "--mpi")
    done = crosslane("run", "--mpi", "mpich", script)
    assert done.status == 0
    assert "libcrosslane_mpich.so" in done.out


def test_family_against_the_program(crosslane: CommandLine, family: str, program: Path) -> None:
    other = "mpich" if family == "openmpi" else "openmpi"
    refused(crosslane.refuse("run", "--mpi", other, program), 2, "--mpi says", other)


def test_launcher_against_the_program(crosslane: CommandLine, family: str, program: Path) -> None:
    other = shutil.which("mpirun.mpich" if family == "openmpi" else "mpirun.openmpi")
    if other is None:
        pytest.skip("only one MPI is installed")
    refused(crosslane.refuse("run", "-n", 2, "--launcher", other, program), 2, "but the program uses")


def test_launcher_that_does_not_exist(crosslane: CommandLine, program: Path) -> None:
    refused(
        crosslane.refuse("run", "-n", 2, "--launcher", "no-launcher -x", program),
        2,
        "launcher not found",
        "no-launcher",
    )


def test_launcher_with_an_open_quotation(crosslane: CommandLine, program: Path) -> None:
    done = crosslane.refuse("run", "-n", 2, "--launcher", "srun 'abc", program)
    refused(done, 2, "--launcher srun 'abc is not understood", "quotation")


def test_script_whose_interpreter_has_a_quotation_mark(crosslane: CommandLine, tmp_path: Path) -> None:
    script = tmp_path / "job"
    script.write_text('#!"abc\n')
    script.chmod(0o755)
    refused(crosslane.refuse("run", script), 126, 'the interpreter of job does not exist: "abc')


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("#!/no/such/shell -e\n", "the interpreter of job does not exist: /no/such/shell"),
        ("#!/bin/sh\r\n", r"line ends of Windows: no interpreter is called '/bin/sh\r'"),
        ("#!/usr/bin/env python3\r\n", r"line ends of Windows: no interpreter is called 'python3\r'"),
    ],
)
def test_script_whose_interpreter_is_missing(crosslane: CommandLine, tmp_path: Path, line: str, told: str) -> None:
    """Exec, and so a launcher, says "No such file or directory" of the script."""
    script = tmp_path / "job"
    script.write_bytes(line.encode())
    script.chmod(0o755)
    for words in ([], ["-n", 2]):
        refused(crosslane.refuse("run", *words, "--mpi", "mpich", script), 126, told)


def test_program_whose_loader_is_missing(crosslane: CommandLine, tmp_path: Path) -> None:
    program = compile_c(PLAIN, tmp_path / "program", "-Wl,--dynamic-linker=/no/such/ld.so")
    done = crosslane.refuse("run", "--mpi", "mpich", program)
    refused(done, 126, "the loader of program does not exist: /no/such/ld.so")


def test_name_that_is_too_long(crosslane: CommandLine) -> None:
    refused(crosslane.refuse("run", "a" * 5000), 127, "program not found: aaa", "File name too long")


@pytest.mark.parametrize("name", ["a b", "latin\udce9", "a (0x1) b"])
def test_folders_with_unusual_names(crosslane: CommandLine, tmp_path: Path, name: str) -> None:
    """A blank, a byte that is no UTF-8, and what the loader's list ends with."""
    program = fake_mpi(tmp_path / name, "libmpi.so.12")
    by_path = compile_c(DEFINES, tmp_path / name / "libmpi.so.12", "-shared", "-fPIC")  # without a soname
    other = compile_c(CALLS, tmp_path / name / "other", str(by_path))
    found = elf.closure(elf.read(program)).libraries
    assert found["libmpi.so.12"] == str(tmp_path / name / "lib" / "libmpi.so.12")
    assert elf.closure(elf.read(other)).libraries["libmpi.so.12"] == str(by_path)
    done = crosslane("run", "-n", 2, program)
    shown = str(tmp_path / name).encode(errors="backslashreplace").decode()
    refused(done, 2, f"no launcher of MPICH (also MVAPICH, Intel MPI) beside {shown}/lib/libmpi.so.12")


def fake_launcher(folder: Path, script: str) -> Path:
    """Beside the libraries of a fake MPI."""
    mpirun = folder / "bin" / "mpirun"
    mpirun.parent.mkdir()
    mpirun.write_text(f"#!/bin/sh\n{script}\n")
    mpirun.chmod(0o755)
    return mpirun


def test_launcher_whose_version_is_no_text(crosslane: CommandLine, tmp_path: Path) -> None:
    program = fake_mpi(tmp_path, "libmpi.so.40")
    mpirun = fake_launcher(tmp_path, "printf '\\377\\n'")
    refused(crosslane.refuse("run", "-n", 2, program), 2, str(mpirun), "not working")


@pytest.mark.parametrize("soname", ["libmpi_cray.so.12", "libmpi_gnu_91.so.12", "libmpi_nvidia.so.12"])
def test_mpi_of_cray(crosslane: CommandLine, tmp_path: Path, soname: str) -> None:
    """MPICH's binary interface under names of its own."""
    program = fake_mpi(tmp_path, soname)
    done = crosslane.refuse("preload", program)
    assert done.status == 0, done.err
    assert done.out.strip().endswith("libcrosslane_mpich.so")
    assert f"{soname} is Cray MPICH" in done.err
    assert "have not tested it" in done.err


def test_libraries_beside_cray_s_mpi_are_none(crosslane: CommandLine, tmp_path: Path) -> None:
    refused(crosslane.refuse("run", fake_mpi(tmp_path, "libmpi_gtl_cuda.so.0")), 2, "does not use MPI")
    refused(crosslane.refuse("run", fake_mpi(tmp_path / "old", "libmpi_gnu.so.3")), 2, "libmpi_gnu.so.3", "rebuild")


@pytest.mark.parametrize("mode", [0o644, 0o755])
def test_program_that_is_a_pipe(crosslane: CommandLine, tmp_path: Path, mode: int) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, mode)
    for words in (["run", "--", pipe], ["doctor", pipe]):
        refused(crosslane(*words), 126, "pipe is not a file")


def test_library_of_the_other_family_says_so_once(built: CommandLine, family: str, program: Path) -> None:
    other = "mpich" if family == "openmpi" else "openmpi"
    library = Path(built.environment["CROSSLANE_PRELOAD"]) / f"libcrosslane_{other}.so"
    done = subprocess.run(
        [program], env=built.environment | {"LD_PRELOAD": str(library)}, text=True, capture_output=True, check=False,
        stdin=subprocess.DEVNULL, timeout=TIMEOUT_S,
    )  # fmt: skip
    assert f"this is Crosslane's library for the {other} family" in done.stderr
    assert "does not have this procedure" not in done.stderr


def test_mpi_without_launcher(crosslane: CommandLine, tmp_path: Path) -> None:
    program = fake_mpi(tmp_path, "libmpi.so.40")
    refused(crosslane.refuse("run", "-n", 2, program), 2, "no launcher of Open MPI", "--launcher")


def test_launcher_of_another_mpi_is_not_taken(crosslane: CommandLine, tmp_path: Path) -> None:
    """Two MPIs installed into one folder overwrite each other's mpirun."""
    program = fake_mpi(tmp_path, "libmpi.so.40")
    mpirun = fake_launcher(tmp_path, "echo 'HYDRA build details:'\necho '    Version: 5.0.2'")
    refused(crosslane.refuse("run", "-n", 2, program), 2, str(mpirun), "overwrite")


@pytest.mark.parametrize("soname", ["libmpi.so.20", "libmpi_abi.so.1"])
def test_mpi_of_an_unknown_abi(crosslane: CommandLine, tmp_path: Path, soname: str) -> None:
    refused(crosslane.refuse("run", fake_mpi(tmp_path, soname)), 2, soname, "rebuild")


def test_mpi_that_the_loader_does_not_find(crosslane: CommandLine, tmp_path: Path) -> None:
    program = fake_mpi(tmp_path, "libmpi.so.12")
    shutil.move(tmp_path / "lib" / "libmpi.so.12", tmp_path / "libmpi.so.12")
    refused(crosslane.refuse("run", program, LD_LIBRARY_PATH=""), 2, "libmpi.so.12", "LD_LIBRARY_PATH")
    found = crosslane.refuse("preload", program, LD_LIBRARY_PATH=str(tmp_path))
    assert found.out.strip().endswith("libcrosslane_mpich.so"), found.err


def test_two_mpis_in_one_program(crosslane: CommandLine, tmp_path: Path) -> None:
    libraries = [
        compile_c(DEFINES, tmp_path / soname, "-shared", "-fPIC", f"-Wl,-soname,{soname}")
        for soname in ("libmpi.so.40", "libmpi.so.12")
    ]
    program = compile_c(
        CALLS, tmp_path / "program", "-Wl,--no-as-needed", *map(str, libraries), f"-Wl,-rpath,{tmp_path}"
    )
    refused(crosslane.refuse("run", program), 2, "two MPIs", "libmpi.so.40", "libmpi.so.12")


@pytest.mark.parametrize(
    "gpus", ["emulated", "emulated:0", "emulated:65", "emulated:x", "4", "emulated:2:/no/such/file"]
)
def test_gpus_that_make_no_sense(crosslane: CommandLine, program: Path, gpus: str) -> None:
    refused(crosslane.refuse("run", "--gpus", gpus, program), 2, "emulated")


def test_paths_that_cannot_be_looked_at(crosslane: CommandLine, program: Path) -> None:
    long = "a" * 300
    refused(crosslane.refuse("run", "--gpus", f"emulated:2:{long}", program), 2, long, "File name too long")
    refused(crosslane.refuse("preload", program, CROSSLANE_PRELOAD=long), 2, long, "File name too long")


def test_family_that_makes_no_sense(crosslane: CommandLine, program: Path) -> None:
    refused(crosslane.refuse("run", "--mpi", "lam", program), 2, "--mpi lam", "openmpi")


def test_libraries_that_are_missing(program: Path, tmp_path: Path) -> None:
    shutil.copytree(
        ROOT / "python" / "crosslane", tmp_path / "crosslane", ignore=shutil.ignore_patterns("__pycache__", "lib")
    )
    command = CommandLine(tmp_path, tmp_path)
    del command.environment["CROSSLANE_PRELOAD"]
    refused(command("run", program), 2, "libcrosslane_", str(tmp_path / "crosslane" / "lib"), "CROSSLANE_PRELOAD")


@pytest.mark.parametrize("words", [["run", "-n", 1], ["preload"], ["doctor"]])
def test_folder_that_lacks_the_libraries(crosslane: CommandLine, program: Path, tmp_path: Path, words: list) -> None:
    """Those of the package or of the checkout would be taken unnoticed."""
    told = (f"CROSSLANE_PRELOAD={tmp_path}: {tmp_path} does not hold libcrosslane_", "or unset it")
    refused(crosslane.refuse(*words, program, CROSSLANE_PRELOAD=str(tmp_path)), 2, *told)
    refused(crosslane.refuse("algorithms", CROSSLANE_PRELOAD=str(tmp_path)), 2, *told)
    refused(crosslane.refuse("doctor", CROSSLANE_PRELOAD=str(tmp_path)), 2, *told)


def test_prefix_s_own_lib_instead_of_the_folder_in_it(stand_ins: Path, program: Path, tmp_path: Path) -> None:
    """That is where cmake --install puts them."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "crosslane").symlink_to(stand_ins)
    done = CommandLine(tmp_path / "lib").refuse("run", program)
    refused(done, 2, "does not hold libcrosslane_", f"remedy: set it to {tmp_path}/lib/crosslane")
    done = CommandLine(tmp_path).refuse("run", program)
    assert "does not hold" in done.err
    assert CommandLine(tmp_path / "lib" / "crosslane")("run", program).status == 0


@pytest.mark.parametrize("missing", ["none", "none/libcrosslane_mpich.so"])
def test_folder_of_libraries_that_does_not_exist(crosslane: CommandLine, tmp_path: Path, missing: str) -> None:
    """Others would be taken unnoticed."""
    named = str(tmp_path / missing)
    for words in (["preload", "--mpi", "mpich"], ["doctor"], ["algorithms"]):
        done = crosslane.refuse(*words, CROSSLANE_PRELOAD=named)
        refused(done, 2, f"CROSSLANE_PRELOAD={named} does not exist")


def test_emulated_driver_that_is_missing(stand_ins: Path, program: Path, tmp_path: Path) -> None:
    shutil.copytree(
        ROOT / "python" / "crosslane", tmp_path / "crosslane", ignore=shutil.ignore_patterns("__pycache__", "lib")
    )
    lib = tmp_path / "some"
    lib.mkdir()
    for library in stand_ins.glob("libcrosslane_*.so"):
        shutil.copy(library, lib)
    command = CommandLine(lib, tmp_path)
    assert command("run", program).status == 0
    # That of another build would be mixed in unnoticed.
    (tmp_path / "crosslane" / "lib").symlink_to(stand_ins)
    refused(command("run", "--gpus", "emulated:2", program), 2, f"{lib} does not hold the emulated driver")
    (tmp_path / "crosslane" / "lib").unlink()
    (tmp_path / "crosslane" / "lib").symlink_to(lib)
    del command.environment["CROSSLANE_PRELOAD"]
    refused(command("run", "--gpus", "emulated:2", program), 2, "emulated driver", "--gpus real")


def test_folder_that_ld_preload_cannot_name(stand_ins: Path, program: Path, tmp_path: Path) -> None:
    lib = tmp_path / "a b"
    shutil.copytree(stand_ins, lib)
    refused(CommandLine(lib).refuse("run", program), 2, "a b", "LD_PRELOAD")


def test_preload_of_nothing(crosslane: CommandLine) -> None:
    refused(crosslane.refuse("preload"), 2, "--mpi")


@pytest.mark.parametrize("words", [["doctor"], ["choose", "allreduce", "1k"], ["preload", "--mpi", "mpich"]])
def test_output_that_cannot_be_written(built: CommandLine, words: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            built.words(*words), env=built.environment, stdin=subprocess.DEVNULL, stdout=full, stderr=subprocess.PIPE,
            text=True, check=False, timeout=TIMEOUT_S,
        )  # fmt: skip
    refused(Result(done.returncode, "", done.stderr), 1, "standard output cannot be written: No space left")
    assert "Exception ignored" not in done.stderr


def test_program_without_a_name(crosslane: CommandLine) -> None:
    refused(crosslane.refuse("run", "-n", 2, ""), 127, "the program's name is empty")


def test_python_without_mpi4py(crosslane: CommandLine, tmp_path: Path) -> None:
    package = tmp_path / "mpi4py"
    package.mkdir()
    (package / "__init__.py").write_text("raise ImportError('no MPI on board')")
    path = f"{tmp_path}:{crosslane.environment['PYTHONPATH']}"
    refused(crosslane.refuse("run", sys.executable, "job.py", PYTHONPATH=path), 2, "mpi4py", "no MPI on board", "--mpi")
