"""`crosslane bench`: starts the benchmark program under its MPI's launcher and shows its measurements as they come.

The program measures and verifies (bench/operation); here its JSON lines become a table.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from crosslane import elf, environment, launcher, libraries, program
from crosslane.families import FAMILIES
from crosslane.problem import Problem

OPERATIONS = (
    "latency", "bandwidth", "bidirectional",
    "allreduce", "bcast", "reduce", "allgather", "reduce_scatter", "alltoall", "gather", "scatter",
)  # fmt: skip

TITLE = {"crosslane": "Crosslane", "by_hand": "by hand", "nccl": "NCCL"}
UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
#: What the program takes (bench/operation/main.cpp): MPI counts floats by int, and times are kept for each iteration.
MOST_BYTES = (2**31 - 1) * 4
MOST_ITERATIONS = 1_000_000


@dataclass(frozen=True)
class Request:
    """What the user asked to measure."""

    operation: str
    ranks: int
    gpus: str | None
    sizes: list[int]
    family: str | None
    iterations: int
    json_file: Path | None
    launcher: str | None


def parse_sizes(text: str) -> list[int]:
    """Bytes of "8,4k,1m" (a list) or "8:64m" (doublings from the first up to the last)."""
    result: list[int] = []
    for part in text.split(","):
        first, colon, last = part.partition(":")
        if not colon:
            result.append(_bytes(first))
            continue
        size, end = _bytes(first), _bytes(last)
        if size > end:
            raise Problem(f"--sizes {part}: the range is empty", "write the smaller size first, e.g. 8:64m")
        while size <= end:
            result.append(size)
            size *= 2
    return list(dict.fromkeys(result))


def _bytes(text: str) -> int:
    word = text.strip().lower()
    unit = UNITS.get(word[-1:], 1)
    digits = word[:-1] if unit > 1 else word
    # Python itself refuses thousands of digits, with an error of its own.
    if not digits.isdecimal() or (len(digits) < 20 and (int(digits) < 1 or int(digits) * unit % 4)):
        raise Problem(
            f"--sizes: {text!r} is not a size",
            "write bytes in multiples of 4 with an optional k, m or g: 8,4k,1m or 8:64m",
        )
    if len(digits) >= 20 or int(digits) * unit > MOST_BYTES:
        shown = text if len(text) <= 24 else f"{text[:20]}..."
        raise Problem(f"--sizes: {shown} is too large", f"write at most {MOST_BYTES} bytes (just below 8g)")
    return int(digits) * unit


def print_bytes(count: int) -> str:
    """65536 as "64k"."""
    for suffix in ("g", "m", "k"):
        if count and count % UNITS[suffix] == 0:
            return f"{count // UNITS[suffix]}{suffix}"
    return str(count)


def measure(request: Request) -> int:
    """Runs the benchmark and prints its table; the exit status."""
    if request.operation not in OPERATIONS:
        raise Problem(f"unknown operation: {request.operation}", f"one of {', '.join(OPERATIONS)}")
    if request.operation in OPERATIONS[:3] and request.ranks < 2:
        raise Problem(f"{request.operation} is between two ranks", "-n 2")
    if request.iterations > MOST_ITERATIONS:
        raise Problem(f"--iterations {request.iterations} are too many", f"write at most {MOST_ITERATIONS}")
    words, variables = _command(request)
    is_new = request.json_file is not None and not request.json_file.exists()
    if request.json_file:
        _require_writable(request.json_file)
    console = Console(emoji=False)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    lines: list[dict[str, Any]] = []
    # A session of its own: what ends the launcher then ends its ranks with it.
    with subprocess.Popen(
        words, env={**os.environ, **variables}, stdout=subprocess.PIPE, text=True, errors="replace",
        start_new_session=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        try:
            with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
                task = progress.add_task(request.operation, total=None)
                for line in process.stdout:
                    row = _row(line)
                    if row is None:
                        sys.stderr.write(line)  # the launcher's own words
                        continue
                    lines.append(row)
                    if "steps" in row:
                        progress.update(task, total=row["steps"])
                    elif "bytes" in row:
                        progress.update(task, advance=1, description=f"{request.operation} {print_bytes(row['bytes'])}")
            status = process.wait()
        except BaseException:
            _end(process)
            raise
    header = next((row for row in lines if "steps" in row), {})
    rows = [row for row in lines if "bytes" in row]
    # What a run that measured nothing would replace may be an earlier one's.
    unwritten = _write(request.json_file, header, rows) if request.json_file and rows else None
    if request.json_file and is_new and not rows:
        request.json_file.unlink(missing_ok=True)
    if rows:
        _print(console, header, rows)
    wrong = sum(1 for row in rows if not row["verified"])
    if wrong:
        console.print(f"[bold red]{wrong} of {len(rows)} measurements had wrong results[/]")
    ended = status if status >= 0 else 128 - status
    if ended:
        console.print(f"[red]the benchmark ended with status {ended}[/]")
    if unwritten:
        raise unwritten
    if ended:
        return ended
    if not rows:
        raise Problem("the benchmark printed no measurement", "set CROSSLANE_LOG=info; its messages are above", 1)
    return 1 if wrong else 0


def _require_writable(path: Path) -> None:
    """Before anything is measured, which may take long."""
    try:
        path.open("a").close()
    except OSError as error:
        raise Problem(f"{path} cannot be written: {error.strerror}", "check --json") from error


def _write(path: Path, header: dict[str, Any], rows: list[dict[str, Any]]) -> Problem | None:
    """Writes the raw measurements; what is wrong is for after the table, which took as long."""
    try:
        path.write_text(json.dumps({"header": header, "rows": rows}, indent=1) + "\n")
    except OSError as error:
        return Problem(f"{path} cannot be written: {error.strerror}", "free space there, or name another file", 1)
    return None


def _row(line: str) -> dict[str, Any] | None:
    """A line of the program; None where it is not one."""
    try:
        return json.loads(line) if line.startswith("{") else None
    except ValueError:
        return None


def _end(process: subprocess.Popen[str]) -> None:
    """Ends the launcher and waits: it forwards the signal to its ranks."""
    try:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _command(request: Request) -> tuple[list[str], dict[str, str]]:
    """The command line of the benchmark, and the launcher's environment."""
    family = request.family or _first_built()
    path = libraries.benchmark(family)
    extra = _library_path(path)
    needed = elf.closure(elf.read(path)).libraries
    variables = environment.for_ranks(family, request.gpus, None)
    setting = variables.get("CROSSLANE_GPU", "auto")
    if setting == "none":
        raise Problem("the benchmark moves data between GPUs, but there are to be none", "--gpus emulated:4, or real")
    if setting == "auto" and needed.get("libcuda.so.1") == "":
        raise Problem("no NVIDIA driver (libcuda.so.1) on this machine", "try emulated GPUs: --gpus emulated:4")
    saved = os.environ.get("LD_LIBRARY_PATH")
    if extra:
        variables["LD_LIBRARY_PATH"] = os.environ["LD_LIBRARY_PATH"] = extra
    try:
        found = program.find_mpi(str(path), family)
    finally:
        if extra and saved is None:
            del os.environ["LD_LIBRARY_PATH"]
        elif extra:
            os.environ["LD_LIBRARY_PATH"] = saved or ""
    chosen = launcher.find(found, request.launcher)
    arguments = [str(path), request.operation, "--sizes", ",".join(map(str, request.sizes))]
    if request.iterations:
        arguments += ["--iterations", str(request.iterations)]
    if nccl := _nccl():
        arguments += ["--nccl", nccl]
    words = launcher.command_line(chosen, request.ranks, variables, arguments, own=bool(request.launcher))
    return words, launcher.own_environment(chosen.family)


def _first_built() -> str:
    for family in FAMILIES:
        try:
            libraries.benchmark(family)
            return family
        except Problem:
            continue
    libraries.benchmark(FAMILIES[0])  # raises, with the remedy
    return FAMILIES[0]


def _library_path(path: Path) -> str:
    """LD_LIBRARY_PATH with this Python's own lib folder, where the program's MPI is found only there; else nothing."""
    needed = elf.closure(elf.read(path)).libraries
    own = Path(sys.prefix) / "lib"
    missing = [name for name, file in needed.items() if not file and (own / name).is_file()]
    if not missing:
        return ""
    given = os.environ.get("LD_LIBRARY_PATH")
    return f"{given}:{own}" if given else str(own)


def _nccl() -> str | None:
    """NCCL as a Python package brings it; the benchmark looks for an installed libnccl.so.2 itself."""
    try:
        spec = importlib.util.find_spec("nvidia.nccl")
    except (ImportError, ValueError):
        return None
    for folder in (spec.submodule_search_locations or []) if spec else []:
        library = Path(folder) / "lib" / "libnccl.so.2"
        if library.is_file():
            return str(library)
    return None


def _print(console: Console, header: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    names = [name for name in TITLE if any(row["column"] == name for row in rows)]
    peers = [name for name in names if name != "crosslane"]
    table = Table(title=f"{header.get('operation', '')}, {header.get('ranks', '?')} ranks", box=box.SIMPLE_HEAD)
    table.add_column("bytes", justify="right", no_wrap=True)
    for name in names:
        table.add_column(f"{TITLE[name]} µs", justify="right", no_wrap=True)
        table.add_column("GB/s", justify="right", no_wrap=True)
    table.add_column("ratio", justify="right", no_wrap=True)
    table.add_column("verified", justify="right", no_wrap=True)
    for size in dict.fromkeys(row["bytes"] for row in rows):
        at = {row["column"]: row for row in rows if row["bytes"] == size}
        cells = [print_bytes(size)]
        for name in names:
            row = at.get(name)
            cells += [f"{row['median_us']:.1f}", _rate(row["gb_per_s"])] if row else ["", ""]
        medians = [at[name]["median_us"] for name in peers if name in at]
        mine = at.get("crosslane", {}).get("median_us")
        cells.append(f"{min(medians) / mine:.2f}" if medians and mine else "")
        cells.append("[green]yes[/]" if all(row["verified"] for row in at.values()) else "[bold red]WRONG[/]")
        table.add_row(*cells)
    console.print(table)
    if peers and "crosslane" in names:
        console.print("[dim]ratio: the best other column's time over Crosslane's[/]")
    if "nccl" in names and os.environ.get("NCCL_NVLS_ENABLE", "0") == "0":
        console.print("[dim]NCCL: without NVLink multicast (NCCL_NVLS_ENABLE=1 measures it with that)[/]")
    for note in (header.get("mpi"), header.get("gpus"), header.get("meaning")):
        if note:
            console.print(Text(" ".join(note.split()), "dim"), soft_wrap=True)  # not markup: an MPI's own words
    for name, reason in header.get("left_out", {}).items():
        console.print(Text(f"{TITLE.get(name, name)} left out: {reason}", "dim"), soft_wrap=True)


def _rate(gb_per_s: float) -> str:
    return f"{gb_per_s:.2f}" if gb_per_s >= 0.01 else "<0.01"
