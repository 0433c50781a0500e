"""The commands: `crosslane run`, `preload`, `doctor`, `algorithms`, `choose`, `bench`.

What they find out is in the modules beside this one.
"""

from __future__ import annotations

import errno
import functools
import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from crosslane import __version__, algorithms, bench, doctor, environment, launcher, program
from crosslane.families import FAMILIES, TITLES
from crosslane.problem import Problem
from crosslane.signals import as_before_python, ending_in_order

app = typer.Typer(
    help="GPU-aware communication over any MPI.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

#: Everything after the first word that is no option belongs to the program.
_PASS_ON = {"allow_interspersed_args": False, "ignore_unknown_options": False}

Gpus = Annotated[
    str,
    typer.Option("--gpus", help="emulated:<GPUs a node, 1 to 64>[:<topology file>], real, or none.", metavar="GPUS"),
]
Family = Annotated[str, typer.Option("--mpi", help="auto (what the program uses), openmpi or mpich.", metavar="FAMILY")]


def _reports_problems(command: Callable[..., Any]) -> Callable[..., Any]:
    """Prints a Problem as two lines on standard error, and exits with its status."""

    @functools.wraps(command)
    def wrapped(*arguments: Any, **options: Any) -> Any:
        try:
            with ending_in_order(), _written_to_the_end():
                return command(*arguments, **options)
        except Problem as problem:
            raise _told(problem) from None
        except OSError as error:
            if error.filename is None:
                raise
            raise _told(Problem(f"{error.filename}: {error.strerror}", "check the path, and who may read it")) from None

    return wrapped


def _told(problem: Problem) -> typer.Exit:
    typer.secho(f"crosslane: {problem.text}", err=True, fg="red")
    typer.secho(f"  remedy: {problem.remedy}", err=True)
    return typer.Exit(problem.status)


@contextmanager
def _written_to_the_end() -> Iterator[None]:
    """Makes a Problem of a standard output that takes no more (a full disk): without it, of what is buffered, too."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except OSError as error:
        # A reader that has gone is click's to answer; a file that has a name, or another error, is not the output.
        if error.filename is not None or error.errno not in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is buffered would fail again at the end
        raise Problem(
            f"standard output cannot be written: {error.strerror}", "free space there, or write elsewhere", 1
        ) from error


def _family(text: str) -> str | None:
    if text == "auto":
        return None
    if text not in FAMILIES:
        raise Problem(f"--mpi {text} is not understood", f"write auto, {' or '.join(FAMILIES)}")
    return text


def _find_mpi(word: str, family: str | None) -> program.Mpi:
    """The MPI of a program that is to be started with a library preloaded."""
    found = program.find_mpi(word, family)
    if problem := program.preload_problem(word, found.family):
        raise problem
    if found.caveat:
        typer.echo(f"crosslane: {found.caveat}", err=True)
    return found


@app.callback(invoke_without_command=True)
@_reports_problems
def _main(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a letter that the terminal's encoding lacks (µ) ends nothing
    if version:
        typer.echo(f"crosslane {__version__}")
        raise typer.Exit


@app.command(context_settings=_PASS_ON)
@_reports_problems
def run(  # noqa: PLR0917 - options of a command line
    command: Annotated[list[str], typer.Argument(help="The program and its arguments.", metavar="[--] PROGRAM...")],
    ranks: Annotated[int, typer.Option("-n", "--ranks", help="Ranks to start; without it, one by itself.", min=0)] = 0,
    gpus: Gpus = "",
    mpi: Family = "auto",
    launcher_command: Annotated[
        str,
        typer.Option("--launcher", help="Launcher to use with its options: 'srun --mpi=pmix'.", metavar="COMMAND"),
    ] = "",
    log: Annotated[str, typer.Option("--log", help="Topics to print, e.g. route (CROSSLANE_LOG).")] = "",
) -> None:
    """Start an unmodified MPI program with Crosslane loaded, under the launcher of the MPI that it uses.

    Signals and the exit status are the launcher's own: this process becomes it.
    """
    found = _find_mpi(command[0], _family(mpi))
    variables = environment.for_ranks(found.family, gpus or None, log or None, found.library)
    if not launcher_command and (ranks == 0 or launcher.inside_a_launcher()):
        if ranks:
            launcher.require_started(ranks, found)
        if stranger := launcher.other_family(found.family):
            typer.echo(
                f"crosslane: a launcher of {TITLES[stranger]} started this process, but the program uses "
                f"{TITLES[found.family]}: each rank may find itself alone\n"
                f"  remedy: start it with the launcher of {TITLES[found.family]}, or by crosslane run -n outside of "
                "any launcher",
                err=True,
            )
        _become(command, variables | launcher.own_environment(found.family))
    chosen = launcher.find(found, launcher_command or None)
    words = launcher.command_line(chosen, ranks, variables, command, own=bool(launcher_command))
    _become(words, launcher.environment_of(chosen, found, variables))


def _become(words: list[str], variables: dict[str, str]) -> None:
    """Replaces this process."""
    sys.stdout.flush()
    sys.stderr.flush()
    as_before_python()
    try:
        os.execvpe(words[0], words, {**os.environ, **variables})
    except OSError as error:
        raise Problem(f"{words[0]} cannot be started: {error.strerror}", "check that it is a program", 126) from error


def _only_word(command: list[str]) -> str | None:
    """The program, of a command that does not start it: what follows would be swallowed."""
    if len(command) > 1:
        raise Problem(
            f"what follows the program is not looked at: {' '.join(command[1:])}",
            "put options before the program, and leave its arguments out",
        )
    return command[0] if command else None


@app.command(context_settings=_PASS_ON)
@_reports_problems
def preload(
    command: Annotated[
        list[str], typer.Argument(help="An MPI program; options come before it.", metavar="[PROGRAM]")
    ] = [],  # noqa: B006
    mpi: Family = "auto",
    gpus: Gpus = "",
) -> None:
    """Print LD_PRELOAD's value, for batch scripts: srun --export=ALL,LD_PRELOAD=$(crosslane preload ./prog) ./prog."""
    family, library = _family(mpi), None
    if word := _only_word(command):
        found = _find_mpi(word, family)
        family, library = found.family, found.library
    if family is None:
        raise Problem("which MPI is not known", "name the program, or the family with --mpi openmpi or --mpi mpich")
    setting = environment.gpu_setting(gpus or None) or os.environ.get("CROSSLANE_GPU", "auto")
    typer.echo(os.fsencode(environment.preload(family, setting, library)))  # the very bytes, whatever the encoding
    if gpus and setting != os.environ.get("CROSSLANE_GPU", "auto"):
        typer.echo(f"crosslane: set CROSSLANE_GPU={setting} for the program as well", err=True)


@app.command("doctor", context_settings=_PASS_ON)
@_reports_problems
def doctor_command(
    command: Annotated[
        list[str], typer.Argument(help="The program to look from; options come before it.", metavar="[PROGRAM]")
    ] = [],  # noqa: B006
    mpi: Family = "auto",
    gpus: Gpus = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print what was found as JSON.")] = False,
) -> None:
    """Look at this machine as a rank would: settings, driver, GPUs, MPI, limits. Exit status 0 when usable."""
    report = doctor.examine(_only_word(command), _family(mpi), gpus or None)
    if as_json:
        doctor.print_json(report)
    else:
        doctor.print_tables(report)
    raise typer.Exit(0 if report["usable"] else 1)


@app.command("algorithms")
@_reports_problems
def algorithms_command(
    as_json: Annotated[bool, typer.Option("--json", help="Print the rows as JSON.")] = False,
) -> None:
    """List the algorithms by which collectives run between GPUs: what each supports, and where it is from."""
    rows = algorithms.catalogue()
    if as_json:
        algorithms.print_json(rows)
    else:
        algorithms.print_catalogue(rows)


@app.command("choose")
@_reports_problems
def choose_command(  # noqa: PLR0917 - options of a command line
    collective: Annotated[
        str, typer.Argument(help="A collective as `crosslane algorithms` names it: allreduce. bcast is broadcast.")
    ],
    count: Annotated[
        str,
        typer.Argument(
            help="Bytes of one rank's contribution, or of one block (see docs/collectives.md): 8, 64k, 1m.",
            metavar="BYTES",
        ),
    ],
    ranks: Annotated[int, typer.Option("-n", "--ranks", help="Ranks of the communicator.", min=1)] = 2,
    gpus: Annotated[
        int, typer.Option("--gpus", help="GPUs that they share, at most one each; 0: each has its own.", min=0)
    ] = 0,
    nodes: Annotated[
        int, typer.Option("--nodes", help="Nodes that they are on, alike; CROSSLANE_NODE_SIZE cuts these.", min=1)
    ] = 1,
    element: Annotated[str, typer.Option("--element", help="What is combined: f32, i64, c128, f64_i32 ...")] = "f32",
    op: Annotated[str, typer.Option("--op", help="How: sum, max, band, minloc ...")] = "sum",
    as_json: Annotated[bool, typer.Option("--json", help="Print what was found as JSON.")] = False,
) -> None:
    """Tell which algorithm a call on GPU memory would take under the settings of this environment, and why.

    No GPU is asked: it is taken that they reach one another's memory, and that MPS runs where ranks share one.
    """
    size = algorithms.parse_bytes(count)
    answer = algorithms.choose(collective, size, ranks=ranks, gpus=gpus, nodes=nodes, element=element, op=op)
    if as_json:
        algorithms.print_json(answer)
    else:
        algorithms.print_choice(answer)


@app.command("bench")
@_reports_problems
def bench_command(  # noqa: PLR0917 - options of a command line
    operation: Annotated[str, typer.Argument(help=f"One of {', '.join(bench.OPERATIONS)}; broadcast is bcast.")],
    ranks: Annotated[int, typer.Option("-n", "--ranks", help="Ranks to start.", min=1)] = 2,
    gpus: Gpus = "",
    sizes: Annotated[
        str, typer.Option("--sizes", help="Bytes: a list (8,4k,1m) or a range of doublings (8:64m).")
    ] = "8,1k,32k,1m,16m",
    mpi: Annotated[str, typer.Option("--mpi", help="openmpi or mpich; auto: the first that is built.")] = "auto",
    iterations: Annotated[int, typer.Option("--iterations", help="Timed iterations a size; 0: by size.", min=0)] = 0,
    json_file: Annotated[str, typer.Option("--json", help="Write the raw measurements to this file.")] = "",
    launcher_command: Annotated[
        str, typer.Option("--launcher", help="Launcher to use, with options.", metavar="COMMAND")
    ] = "",
) -> None:
    """Measure an operation on device buffers: Crosslane, copies by hand around plain MPI, NCCL where there is one."""
    status = bench.measure(
        bench.Request(
            operation="bcast" if operation == "broadcast" else operation,
            ranks=ranks,
            gpus=gpus or None,
            sizes=bench.parse_sizes(sizes),
            family=_family(mpi),
            iterations=iterations,
            json_file=Path(json_file) if json_file else None,
            launcher=launcher_command or None,
        )
    )
    raise typer.Exit(status)
