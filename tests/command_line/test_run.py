"""`crosslane run` and `crosslane preload`: what the ranks get, and that statuses and signals pass through."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from conftest import HERE, ROOT, TIMEOUT_S, CommandLine, alive, begun, compile_c, wait_for_ranks, wrapper


def names(preload: str) -> list[str]:
    """The libraries, without their endings and without the level of MPI that ours is for."""
    return [re.sub(r"(_mpi\d\w*)?\.so.*", "", Path(path).name) for path in preload.split(":")]


def test_every_rank_has_the_library_of_its_mpi(crosslane: CommandLine, family: str, program: Path) -> None:
    done = crosslane("run", "-n", 3, program)
    assert done.status == 0, done.err
    assert [rank["rank"] for rank in done.ranks()] == [0, 1, 2]
    assert all(rank["size"] == 3 for rank in done.ranks())
    assert all(names(rank["preload"]) == [f"libcrosslane_{family}"] for rank in done.ranks())


def test_no_procedure_appears_that_the_mpi_lacks(crosslane: CommandLine, family: str, folder: Path) -> None:
    """A program that asks its MPI for newer procedures, by weak references or dlsym, must not find ours instead."""
    asking = compile_c(HERE / "programs" / "asking.c", folder / f"asking_{family}", "-ldl", compiler=wrapper(family))
    plain = subprocess.run([asking], capture_output=True, text=True, check=True, timeout=TIMEOUT_S)
    done = crosslane("run", asking)
    assert done.status == 0, done.err
    assert done.out == plain.stdout
    assert "MPI_Send weak dlsym" in done.out


def test_without_a_number_the_program_runs_by_itself(crosslane: CommandLine, family: str, program: Path) -> None:
    done = crosslane("run", program)
    assert done.status == 0, done.err
    assert [rank["size"] for rank in done.ranks()] == [1]
    assert names(done.ranks()[0]["preload"]) == [f"libcrosslane_{family}"]


@pytest.mark.parametrize("ranks", [0, 2])
def test_exit_status_passes_through(crosslane: CommandLine, program: Path, ranks: int) -> None:
    done = crosslane("run", "-n", ranks, "--", program, "exit", 3)
    assert done.status == 3


def test_signals_that_python_ignores_reach_the_program(crosslane: CommandLine, folder: Path) -> None:
    """With SIGPIPE ignored a program would write for ever to a reader that has gone."""
    source = """
        #include <mpi.h>
        #include <signal.h>
        #include <stdio.h>
        int main(int argc, char** argv) {
          struct sigaction broken, long_file;
          sigaction(SIGPIPE, 0, &broken);
          sigaction(SIGXFSZ, 0, &long_file);
          MPI_Init(&argc, &argv);
          printf("%d %d\\n", broken.sa_handler == SIG_DFL, long_file.sa_handler == SIG_DFL);
          return MPI_Finalize();
        }
    """
    asking = compile_c(source, folder / "asks_for_signals", compiler=wrapper("mpich"))
    done = crosslane("run", asking)
    assert (done.status, done.out) == (0, "1 1\n"), done.err


def test_emulated_gpus_load_their_driver_first(crosslane: CommandLine, family: str, program: Path) -> None:
    done = crosslane("run", "-n", 2, "--gpus", "emulated:2", "--log", "route", program)
    assert done.status == 0, done.err
    for rank in done.ranks():
        assert names(rank["preload"]) == ["libcuda", f"libcrosslane_{family}"]
        assert (rank["gpu"], rank["log"]) == ("emulated:2", "route")
    assert len(done.ranks()) == 2


@pytest.mark.parametrize(("option", "value"), [("real", "auto"), ("none", "none")])
def test_other_gpus(crosslane: CommandLine, program: Path, option: str, value: str) -> None:
    (rank,) = crosslane("run", "--gpus", option, program, CROSSLANE_GPU="emulated:3").ranks()
    assert rank["gpu"] == value
    assert "libcuda" not in rank["preload"]


@pytest.mark.parametrize("command", ["preload", "doctor"])
def test_options_behind_the_program_are_not_swallowed(crosslane: CommandLine, program: Path, command: str) -> None:
    done = crosslane(command, program, "--gpus", "none")
    assert done.status != 0
    assert "what follows the program is not looked at: --gpus none" in done.err
    assert "put options before the program" in done.err


def test_preload_tells_of_the_setting_that_belongs_to_it(crosslane: CommandLine, program: Path) -> None:
    done = crosslane("preload", "--gpus", "emulated:2", program)
    assert done.status == 0, done.err
    assert names(done.out.strip())[0] == "libcuda"
    assert "set CROSSLANE_GPU=emulated:2" in done.err
    assert not crosslane("preload", "--gpus", "emulated:2", program, CROSSLANE_GPU="emulated:2").err


def test_environment_names_emulated_gpus_too(crosslane: CommandLine, program: Path) -> None:
    (rank,) = crosslane("run", program, CROSSLANE_GPU="emulated:3").ranks()
    assert rank["gpu"] == "emulated:3"
    assert names(rank["preload"])[0] == "libcuda"


def test_settings_of_the_caller_reach_every_rank(crosslane: CommandLine, program: Path) -> None:
    done = crosslane("run", "-n", 2, program, CROSSLANE_STATS="0", CROSSLANE_GPU="none")
    assert [(rank["stats"], rank["gpu"]) for rank in done.ranks()] == [("0", "none")] * 2


@pytest.mark.parametrize("separator", [":", " "])
def test_what_the_user_preloads_stays_first(
    crosslane: CommandLine, program: Path, separator: str, folder: Path
) -> None:
    tools = []
    for number in (1, 2):
        tools.append(folder / f"libtool{number}.so")
        subprocess.run(["gcc", "-shared", "-x", "c", "/dev/null", "-o", str(tools[-1])], check=True)
    done = crosslane("run", "-n", 2, program, LD_PRELOAD=separator.join(map(str, tools)))
    assert done.status == 0, done.err
    for rank in done.ranks():
        assert names(rank["preload"])[:2] == ["libtool1", "libtool2"]
        assert names(rank["preload"])[2].startswith("libcrosslane_")


def test_library_is_not_preloaded_twice(crosslane: CommandLine, program: Path) -> None:
    once = crosslane.refuse("preload", program).out.strip()
    assert crosslane.refuse("preload", program, LD_PRELOAD=once).out.strip() == once


def test_libraries_of_ours_that_were_preloaded_before_give_way(
    crosslane: CommandLine, program: Path, family: str, folder: Path
) -> None:
    """They may be for another MPI, and the first of the loader's search would win."""
    tool = folder / "libtool.so"
    subprocess.run(["gcc", "-shared", "-x", "c", "/dev/null", "-o", str(tool)], check=True)
    own = crosslane.refuse("preload", program).out.strip()
    other = own.replace(family, {"openmpi": "mpich", "mpich": "openmpi"}[family])
    before = f"{folder}/emulated/libcuda.so.1:{other}:{tool}:{own.replace('.so', '_mpi3.so')}"
    assert crosslane.refuse("preload", program, LD_PRELOAD=before).out.strip() == f"{tool}:{own}"


@pytest.mark.parametrize("dashes", [[], ["--"]])
def test_arguments_reach_the_program_as_they_are(crosslane: CommandLine, program: Path, dashes: list[str]) -> None:
    arguments = ["-n", "5", "--gpus", "x y", "--", "a:b", "*"]
    done = crosslane("run", "-n", 2, *dashes, program, *arguments)
    assert [rank["arguments"] for rank in done.ranks()] == [arguments] * 2


def test_inside_a_launcher_it_only_preloads(crosslane: CommandLine, family: str, program: Path) -> None:
    launcher = shutil.which(f"mpirun.{family}") or "mpirun"
    words = [launcher, *(["--oversubscribe"] if family == "openmpi" else []), "-n", "2"]
    # A launcher that is not ours gets what tools/run-tests or the user would tell it.
    told = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_plm_rsh_agent": ""}

    def inside(*options: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words + crosslane.words("run", *options, program), env=crosslane.environment | told, text=True,
            stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=TIMEOUT_S,
        )  # fmt: skip

    for options in ([], ["-n", 2]):
        done = inside(*options)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count('"size": 2') == 2
        assert done.stdout.count(f"/libcrosslane_{family}") == 2
    done = inside("-n", 5)
    assert done.returncode != 0
    assert "-n 5, but a launcher started this process already" in done.stderr
    assert "2 ranks" in done.stderr
    assert '"size"' not in done.stdout


@pytest.mark.parametrize(
    ("variables", "known"),
    [({"PMIX_RANK": "0"}, "does not say"), ({"PMI_RANK": "0", "PMI_SIZE": "1"}, "1 rank"),
     ({"PMIX_RANK": "0", "SLURM_STEP_NUM_TASKS": "1"}, "1 rank")],
)  # fmt: skip
def test_a_batch_system_s_shell_is_no_launcher_s_rank(
    crosslane: CommandLine, family: str, program: Path, variables: dict[str, str], known: str
) -> None:
    """As srun --pty bash gives: the program would run alone, and succeed."""
    done = crosslane.refuse("run", "-n", 2, program, **variables)
    assert done.status == 2
    assert known in done.err
    remedy = re.search(r"--launcher (\S+);", done.err)
    assert remedy
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    own = f"{remedy[1]} --oversubscribe" if family == "openmpi" else remedy[1]
    done = crosslane("run", "-n", 2, "--launcher", own, program, **variables, **root)
    assert done.status == 0, done.err
    assert [rank["size"] for rank in done.ranks()] == [2, 2]


def test_more_ranks_than_anyone_means(crosslane: CommandLine, program: Path) -> None:
    """Launchers allocate for each, until the system ends someone."""
    here = 1024 * len(os.sched_getaffinity(0))
    done = crosslane.refuse("run", "-n", here + 1, program)
    assert done.status == 2
    assert f"-n {here + 1} are too many" in done.err
    assert f"at most {here} on this machine" in done.err
    # Where it may start them elsewhere, that is the launcher's affair, up to a limit.
    for variables, options in (({"SLURM_JOB_ID": "1"}, []), ({}, ["--launcher", "true"])):
        done = crosslane.refuse("run", "-n", 10_000_000, *options, program, **variables)
        assert done.status == 2
        assert "at most 1048576\n" in done.err


def test_launcher_of_the_other_family_is_told(crosslane: CommandLine, family: str, program: Path) -> None:
    """Each rank is then alone, and every program of one rank succeeds."""
    other = "mpich" if family == "openmpi" else "openmpi"
    marks = {"openmpi": {"OMPI_COMM_WORLD_SIZE": "2"}, "mpich": {"PMI_RANK": "0", "HYDI_CONTROL_FD": "7"}}
    told = "launcher of Open MPI started" if other == "openmpi" else "launcher of MPICH"

    def said(**variables: str) -> str:
        # A plain program: an MPI that finds these variables would look for the launcher behind them.
        done = crosslane("run", "--mpi", family, program.parent / "script.sh", **variables)
        assert done.status == 0, done.err
        return done.err

    script = program.parent / "script.sh"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    assert told in said(**marks[other])
    assert "remedy: start it with the launcher of" in said(**marks[other])
    # What starts either family, or was started by both, says nothing.
    assert said(**marks[family]) == said(PMI_RANK="0") == said(**marks[other], **marks[family]) == ""


def test_open_mpi_starts_without_a_path(crosslane: CommandLine, folder: Path) -> None:
    """It finds no remote shell then, wherever that is."""
    program = compile_c(HERE / "programs" / "ranks.c", folder / "ranks_pathless", compiler=wrapper("openmpi"))
    environment = {name: value for name, value in crosslane.environment.items() if name != "PATH"}
    done = subprocess.run(
        crosslane.words("run", "-n", 2, program), env=environment, stdin=subprocess.DEVNULL, capture_output=True,
        text=True, check=False, timeout=TIMEOUT_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.count('"size": 2') == 2


def test_open_mpi_starts_where_there_is_no_remote_shell(crosslane: CommandLine, folder: Path, tmp_path: Path) -> None:
    """Open MPI 4 does not, unless it is told that none is wanted."""
    program = compile_c(HERE / "programs" / "ranks.c", folder / "ranks_alone", compiler=wrapper("openmpi"))
    for folder_of_path in os.environ["PATH"].split(os.pathsep):
        for tool in Path(folder_of_path).glob("*"):
            link = tmp_path / tool.name
            if tool.name not in {"ssh", "rsh"} and not link.is_symlink():
                link.symlink_to(tool)
    for ranks in (1, 0):
        done = crosslane("run", "-n", ranks, program, PATH=str(tmp_path))
        assert done.status == 0, done.err
        assert len(done.ranks()) == 1


def test_launcher_of_the_user_keeps_its_options(crosslane: CommandLine, family: str, program: Path) -> None:
    mine = shutil.which(f"mpirun.{family}") or "mpirun"
    options = "--oversubscribe --tag-output" if family == "openmpi" else "-prepend-rank"
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    done = crosslane("run", "-n", 2, "--launcher", f"{mine} {options}", program, **root)
    assert done.status == 0, done.err
    lines = [line for line in done.out.splitlines() if '"rank"' in line]
    assert len(lines) == 2
    assert all(line.startswith("[") for line in lines)
    assert all(f"libcrosslane_{family}" in line for line in lines)


def test_unknown_launcher_gets_the_environment_as_words(crosslane: CommandLine, program: Path, tmp_path: Path) -> None:
    other = tmp_path / "srun"
    other.write_text('#!/bin/sh\n[ "$1 $2 $3" = "--flag -n 4" ] || exit 9\nshift 3\nexec "$@"\n')
    other.chmod(0o755)
    done = crosslane("run", "-n", 4, "--launcher", f"{other} --flag", "--gpus", "emulated:2", program)
    assert done.status == 0, done.err
    (rank,) = done.ranks()
    assert rank["gpu"] == "emulated:2"
    assert names(rank["preload"])[0] == "libcuda"


@pytest.mark.parametrize(("version", "passes_on"), [("4.1.6", False), ("5.0.11", True)])
def test_what_ranks_spawn_is_served_under_open_mpi_5(
    crosslane: CommandLine, family: str, program: Path, tmp_path: Path, version: str, *, passes_on: bool
) -> None:
    if family != "openmpi":
        pytest.skip("MPICH's launcher hands on what it was told")
    # A spawned process has the launcher's environment, whatever -x said.
    other = tmp_path / "mpirun"
    other.write_text(f'#!/bin/sh\n[ "$1" != --version ] || exec echo "mpirun (Open MPI) {version}"\nexec {program}\n')
    other.chmod(0o755)
    done = crosslane("run", "-n", 1, "--launcher", other, "--gpus", "emulated:2", program)
    assert done.status == 0, done.err
    (rank,) = done.ranks()
    assert (rank["gpu"] == "emulated:2") is passes_on
    assert [name for name in names(rank["preload"] or "") if name.startswith("libcrosslane_")] == (
        ["libcrosslane_openmpi"] if passes_on else []
    )


def test_program_that_env_would_take_for_a_variable(crosslane: CommandLine, program: Path, tmp_path: Path) -> None:
    other = tmp_path / "srun"
    other.write_text('#!/bin/sh\nshift 2\nexec "$@"\n')
    other.chmod(0o755)
    named = tmp_path / "a=b"
    shutil.copy(program, named)
    done = crosslane("run", "-n", 1, "--launcher", other, "--", named, "c=d", "e f")
    assert done.status == 0, done.err
    (rank,) = done.ranks()
    assert rank["arguments"] == ["c=d", "e f"]
    assert names(rank["preload"])[-1].startswith("libcrosslane_")


@pytest.mark.parametrize("ranks", [0, 2])
def test_a_signal_ends_the_ranks(crosslane: CommandLine, program: Path, ranks: int) -> None:
    with begun(crosslane.words("run", "-n", ranks, program, "wait"), crosslane.environment) as process:
        # A launcher may mix what ranks print, even within words: the system tells which processes these are.
        pids = wait_for_ranks(process, max(ranks, 1), program, "wait")
        process.send_signal(signal.SIGTERM)
        status = process.wait(timeout=TIMEOUT_S)
    if ranks == 0:  # with a launcher the status is its own affair: MPICH's may call it success
        assert status == -signal.SIGTERM
        assert pids == [process.pid]
    assert not any(map(alive, pids))


def test_preload_is_what_run_preloads(crosslane: CommandLine, family: str, program: Path) -> None:
    (rank,) = crosslane("run", "--gpus", "emulated:1", program).ranks()
    for arguments in ([str(program)], ["--mpi", family]):
        done = crosslane.refuse("preload", "--gpus", "emulated:1", *arguments)
        assert done.status == 0, done.err
        assert names(done.out.strip()) == names(rank["preload"])
    # Which procedures this MPI has can be seen from the program alone.
    done = crosslane.refuse("preload", "--gpus", "emulated:1", program)
    assert done.out.strip() == rank["preload"]


def test_help_preloads_the_ranks_alone(crosslane: CommandLine) -> None:
    """LD_PRELOAD=... srun would preload srun, too."""
    text = " ".join(crosslane.refuse("preload", "--help").out.split())
    assert "srun --export=ALL,LD_PRELOAD=$(crosslane preload ./prog) ./prog" in text


def test_package_runs_from_anywhere(libraries: Path, program: Path, tmp_path: Path) -> None:
    """As it is installed: libraries inside the package, no checkout around it."""
    shutil.copytree(ROOT / "python" / "crosslane", tmp_path / "crosslane", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "crosslane" / "lib").symlink_to(libraries)
    command = CommandLine(libraries, tmp_path)
    del command.environment["CROSSLANE_PRELOAD"]
    (rank,) = command("run", program).ranks()
    assert str(tmp_path) in rank["preload"]
