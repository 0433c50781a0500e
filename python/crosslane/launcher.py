"""The launcher that belongs to an MPI, and the command line that gives ranks an environment with it."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from crosslane.families import TITLES, family_of_version
from crosslane.problem import Problem
from crosslane.program import Mpi

#: Set by launchers in every rank's environment.
_RANK_VARIABLES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMI_RANK", "PMIX_RANK")
#: No machine that we know of has room for more, and launchers allocate for each before they look.
_MOST_RANKS = 1 << 20
#: Where the launcher can start ranks on this machine alone, as far as we see.
_MOST_RANKS_A_CPU = 1 << 10
#: Set by batch systems: the launcher then knows how many ranks fit, and oversubscribing is not ours to decide.
_BATCH_VARIABLES = ("SLURM_JOB_ID", "PBS_NODEFILE", "LSB_JOBID", "PE_HOSTFILE", "FLUX_URI")


@dataclass(frozen=True)
class Launcher:
    """A launcher's words, its family (None: neither of the two, e.g. srun) and its version's first number."""

    words: tuple[str, ...]
    family: str | None
    major: int = 0


def inside_a_launcher() -> bool:
    """True in a process that an MPI launcher started."""
    return any(name in os.environ for name in _RANK_VARIABLES)


def other_family(family: str) -> str | None:
    """The family of the launcher that started this process, where that is known and cannot join ranks of `family`.

    Batch systems' launchers set some of these variables, too, and start either family.
    """
    found = []
    if "OMPI_COMM_WORLD_SIZE" in os.environ:
        found.append("openmpi")
    if "PMI_RANK" in os.environ and "HYDI_CONTROL_FD" in os.environ:  # of Hydra's own proxy
        found.append("mpich")
    return found[0] if len(found) == 1 and found[0] != family else None  # one inside the other: who knows


def started_ranks() -> int:
    """How many ranks the launcher started that started this process; 0 where it does not say."""
    # Slurm's comes last: ranks of another launcher may inherit it from the step that their launcher runs in.
    for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"):
        said = os.environ.get(name, "")
        if re.fullmatch("[0-9]{1,9}", said):
            return int(said)
    return 0


def require_started(ranks: int, mpi: Mpi) -> None:
    """Problem where a launcher started this process, but not as one of so many ranks: -n then asks for others.

    An interactive shell of a batch system (srun --pty bash) looks like a rank, and is the only one.
    """
    started = started_ranks()
    if started == ranks:
        return
    mark = next(f"{name}={os.environ[name]}" for name in _RANK_VARIABLES if name in os.environ)
    known = f"{started} rank{'s' if started > 1 else ''}" if started else "it does not say how many ranks"
    try:
        named = shlex.join(find(mpi).words)
    except Problem:
        named = "COMMAND"
    raise Problem(
        f"-n {ranks}, but a launcher started this process already ({mark}): {known}",
        f"to start {ranks} from here, as in an interactive shell of a batch system, name the launcher: "
        f"--launcher {shlex.quote(named)}; to be one of those that were started, leave -n out",
    )


def identify(words: tuple[str, ...]) -> Launcher:
    """Asks a launcher for its version."""
    try:
        asked = subprocess.run(
            [words[0], "--version"],
            capture_output=True, text=True, errors="replace", timeout=30, check=False, stdin=subprocess.DEVNULL,
            env=_without_preload(),
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return Launcher(words, None)
    text = asked.stdout + asked.stderr
    family = family_of_version(text) if asked.returncode == 0 else None
    number = re.search(r"(?:\(.*\)|Version:)\s+(\d+)\.", text)
    return Launcher(words, family, int(number[1]) if number else 0)


def find(mpi: Mpi, command: str | None = None) -> Launcher:
    """The launcher of this very MPI, or the one that the user named. Problem where there is none."""
    if command:
        try:
            words = tuple(shlex.split(command))
        except ValueError as error:
            raise Problem(
                f"--launcher {command} is not understood: {error}", "close each quotation mark, as in a shell"
            ) from error
        if not words or not shutil.which(words[0]):
            raise Problem(f"launcher not found: {command}", "check --launcher, or leave it out")
        launcher = identify(words)
        if launcher.family not in (None, mpi.family):
            raise Problem(
                f"{words[0]} starts {TITLES[launcher.family]}, but the program uses {TITLES[mpi.family]}",
                "leave --launcher out, or name the launcher of the program's MPI",
            )
        return launcher
    strangers = []
    for candidate in _candidates(mpi):
        launcher = identify((str(candidate),))
        if launcher.family == mpi.family:
            return launcher
        strangers.append(str(candidate))
    where = f"beside {mpi.library}" if mpi.library else "on the PATH"
    found = f" (found, but not of that MPI or not working: {', '.join(strangers)})" if strangers else ""
    remedy = "install the launcher's package (Debian: openmpi-bin or mpich), or name one with --launcher"
    if mpi.library and strangers:
        remedy = (
            "two MPIs in one folder overwrite each other's launcher: keep each in an environment of its own, "
            "or name the right launcher with --launcher"
        )
    raise Problem(f"no launcher of {TITLES[mpi.family]} {where}{found}", remedy)


def _candidates(mpi: Mpi) -> list[Path]:
    names = {
        "openmpi": ("mpirun.openmpi", "mpiexec.openmpi", "mpirun", "mpiexec"),
        "mpich": ("mpiexec.mpich", "mpirun.mpich", "mpiexec.hydra", "mpiexec", "mpirun"),
    }[mpi.family]
    if mpi.library is None:
        found = [shutil.which(name) for name in names]
        return [Path(path) for path in dict.fromkeys(found) if path]
    folders: list[Path] = []
    for library in (mpi.library, mpi.library.resolve()):
        # Resolved: called as /bin/mpirun, Open MPI would take "/" for its prefix and refuse it.
        folder = (_prefix(library) / "bin").resolve()
        if folder not in folders:
            folders.append(folder)
    paths = (folder / name for folder in folders for name in names)
    return [path for path in paths if path.is_file() and os.access(path, os.X_OK)]


def _prefix(library: Path) -> Path:
    """Where an MPI is installed: its library is in <prefix>/lib, .../lib/x86_64-linux-gnu or .../lib/release."""
    folder = library.parent
    while folder.name not in {"lib", "lib64", ""} and (
        "-linux-gnu" in folder.name or folder.name in {"release", "debug", "release_mt", "debug_mt"}
    ):
        folder = folder.parent
    return folder.parent


def command_line(
    launcher: Launcher, ranks: int, environment: dict[str, str], program: list[str], *, own: bool
) -> list[str]:
    """What to exec: launcher, its options, the ranks' environment, the program. `own`: the user named the launcher."""
    words = list(launcher.words)
    _require_room(ranks, elsewhere=own or any(name in os.environ for name in _BATCH_VARIABLES))
    if ranks:
        words += ["-n", str(ranks)]
    if launcher.family == "openmpi":
        if not own and ranks > _cores() and not any(name in os.environ for name in _BATCH_VARIABLES):
            # 5 warns about the old spelling, 4.1 does not know every form of the new one.
            words += ["--map-by", ":OVERSUBSCRIBE"] if launcher.major >= 5 else ["--oversubscribe"]
        for name, value in environment.items():
            words += ["-x", f"{name}={value}"]
    elif launcher.family == "mpich":
        for name, value in environment.items():
            words += ["-genv", name, value]
    else:
        words += ["env", *(f"{name}={value}" for name, value in environment.items())]
        if "=" in program[0]:  # env would take it for one more variable
            words += ["sh", "-c", 'exec "$0" "$@"']
    return words + program


def environment_of(launcher: Launcher, mpi: Mpi, environment: dict[str, str]) -> dict[str, str]:
    """What the launcher itself must be told: see own_environment(). Open MPI 5 hands what -x says to the ranks that it
    starts, but not to those that they spawn (MPI_Comm_spawn); these get the launcher's own, on its own node.
    """
    passes_on = launcher.family == "openmpi" and launcher.major >= 5
    return own_environment(mpi.family) | (environment if passes_on else {})


def _require_room(ranks: int, *, elsewhere: bool) -> None:
    """Problem where so many ranks can only be a slip of the hand: a launcher would fill the memory with them."""
    most = _MOST_RANKS if elsewhere else min(_MOST_RANKS, _MOST_RANKS_A_CPU * len(os.sched_getaffinity(0)))
    if ranks > most:
        where = "" if elsewhere else f" on this machine ({_MOST_RANKS_A_CPU} a CPU)"
        remedy = "" if elsewhere else "; if they are to run on others, name the launcher with --launcher"
        raise Problem(f"-n {ranks} are too many", f"start at most {most}{where}{remedy}")


def own_environment(family: str | None) -> dict[str, str]:
    """What the launcher, or a program that starts by itself, must be told on this machine: Open MPI refuses to run as
    root unless it is told twice, and Open MPI 4 to start even on this node alone where there is no remote shell.
    """
    if family != "openmpi":
        return {}
    told = {}
    if os.geteuid() == 0:
        told = {f"{who}_ALLOW_RUN_AS_ROOT{what}": "1" for who in ("OMPI", "PRTE") for what in ("", "_CONFIRM")}
    path = os.environ.get("PATH", "")  # unset, which() would look in folders of its own, and Open MPI in none
    if "OMPI_MCA_plm_rsh_agent" not in os.environ and not any(shutil.which(one, path=path) for one in ("ssh", "rsh")):
        told["OMPI_MCA_plm_rsh_agent"] = ""
    return told


def _cores() -> int:
    """Physical cores that this process may use: Open MPI counts slots by them."""
    cpus = os.sched_getaffinity(0)
    cores = set()
    for cpu in cpus:
        siblings = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/core_cpus_list")
        try:
            cores.add(siblings.read_text().strip())
        except OSError:
            cores.add(str(cpu))
    return len(cores)


def _without_preload() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
