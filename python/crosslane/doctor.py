"""`crosslane doctor`: what the C++ side finds in child processes, as tables.

The children are there so that a library that crashes while it loads is a finding, and because handing GPU memory from
one process to another needs two. What is a problem, and its remedy, is said by the C++ side (src/api/doctor.h).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from crosslane import elf, environment, launcher, libraries, program
from crosslane.child import DiedError, loaded
from crosslane.families import FAMILIES, TITLES
from crosslane.problem import Problem

_SONAMES = {"openmpi": ["libmpi.so.40"], "mpich": ["libmpi.so.12", "libmpich.so.12"]}


def examine(program_name: str | None, family: str | None, gpus: str | None) -> dict[str, Any]:
    """The report: what the library found in this environment, with `problems` and `usable`."""
    mpi = _which_mpi(program_name, family)
    library = libraries.interposed(mpi.family, mpi.library)
    variables = environment.for_ranks(mpi.family, gpus, None, mpi.library)
    mpis = [str(mpi.library)] if mpi.library else _SONAMES[mpi.family]
    report: dict[str, Any] = {"family": mpi.family, "library": str(library), "usable": False, "problems": []}
    try:
        with loaded(str(library), mpis, variables) as exporter:
            found = exporter.ask("crosslane_doctor_json")
            if found is None:
                raise Problem(
                    f"{library} does not export crosslane_doctor_json", "build it anew: it is of an older version"
                )
            report.update(found)
            report["coverage"] = exporter.ask("crosslane_coverage_json")
            exported = exporter.ask("crosslane_doctor_export_json") or {}
            _take_problems(report, exported)
            if exported.get("handles"):
                with loaded(str(library), mpis, variables) as importer:
                    report["ipc"] = importer.ask("crosslane_doctor_import_json", json.dumps(exported)) or {}
                _take_problems(report, report["ipc"])
    except DiedError as death:
        report["problems"].append(
            {
                "severity": "error",
                "text": f"a process with {library.name} loaded crashed: {death}",
                "remedy": "report it with this output; CROSSLANE_DISABLE=1 forwards every call untouched",
            }
        )
    if program_name and (ignored := program.preload_problem(program_name, mpi.family)):
        report["problems"].append({"severity": "error", "text": ignored.text, "remedy": ignored.remedy})
    if mpi.caveat:
        remedy = "compare a few results with those under CROSSLANE_DISABLE=1"
        report["problems"].append({"severity": "warning", "text": mpi.caveat, "remedy": remedy})
    if (report.get("mpi") or {}).get("loaded"):
        report["lacking"] = _lacking(report)
        _try_mpi(report, str(library), mpis, variables)
    report["usable"] = bool(report["usable"]) and not any(p["severity"] == "error" for p in report["problems"])
    return report


def _take_problems(report: dict[str, Any], part: dict[str, Any]) -> None:
    """Moves a part's problems, and the error that ended it, to the report's, where each is told once."""
    found = part.pop("problems", [])
    if error := part.pop("error", ""):
        remedy = "correct what is told above, or see nvidia-smi: its compute mode, and who else uses the GPUs"
        found.append({"severity": "error", "text": error, "remedy": remedy})
    for problem in found:
        if problem["text"] not in {one["text"] for one in report["problems"]}:
            report["problems"].append(problem)
    part.pop("usable", None)  # the problems say so


def _lacking(report: dict[str, Any]) -> list[str]:
    """The procedures of the coverage that the MPI that was found does not have."""
    try:
        has = elf.exported_names(Path(report["mpi"]["path"]), "MPI_")
    except (OSError, ValueError):
        return []
    return [one["procedure"] for one in report.get("coverage") or [] if has and one["procedure"] not in has]


def _try_mpi(report: dict[str, Any], library: str, mpis: list[str], variables: dict[str, str]) -> None:
    """Initializes MPI, in a child of its own: some end the process when they do not like where they are."""
    try:
        with loaded(library, mpis, {**variables, **launcher.own_environment("openmpi")}) as child:
            tried = child.ask("crosslane_doctor_mpi_json")
    except DiedError as death:
        report["problems"].append(
            {
                "severity": "warning",
                "text": f"this MPI does not start a process by itself (without a launcher): {death}",
                "remedy": "start under its launcher: crosslane run -n 2 ...",
            }
        )
        return
    if tried:
        _take_problems(report, tried)
        report["mpi"] |= tried


def _which_mpi(program_name: str | None, family: str | None) -> program.Mpi:
    if program_name:
        return program.find_mpi(program_name, family)
    built = libraries.available()
    try:
        mine = program.ask_python(program.find_executable(sys.executable))
    except Problem:
        mine = None
    if mine is not None and family in (None, mine.family) and mine.family in built:
        return mine
    if family is None and not built:
        libraries.interposed(FAMILIES[0])  # raises, with the remedy
    return program.Mpi(family or built[0], None)


def print_json(report: dict[str, Any]) -> None:
    """The report as it is."""
    print(json.dumps(report, indent=1))


def _gib(count: int) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.0f} MiB"


def print_tables(report: dict[str, Any]) -> None:
    """The report for people."""
    console = Console(emoji=False)  # ":x:" in a path is no picture
    _print_overview(console, report)
    _print_gpus(console, report)
    _print_settings(console, report)
    _print_coverage(console, report)
    marks = {"error": "[bold red]error[/]", "warning": "[yellow]warning[/]", "note": "[blue]note[/]"}
    for problem in report["problems"]:
        console.print(f"{marks.get(problem['severity'], '')}: ", end="")
        console.print(problem["text"], markup=False, soft_wrap=True)
        if problem.get("remedy"):
            console.print("  remedy: ", end="")
            console.print(problem["remedy"], markup=False, soft_wrap=True)
    console.print("[bold green]usable[/]" if report["usable"] else "[bold red]not usable[/]")


def _print_overview(console: Console, report: dict[str, Any]) -> None:
    table = Table(title=f"Crosslane for {TITLES[report['family']]}", show_header=False, box=box.SIMPLE)
    table.add_column(overflow="fold")
    table.add_column(overflow="fold")  # a path that is cut is none
    rows = [("library", report["library"])]
    if mpi := report.get("mpi"):
        rows.append(("MPI", " ".join(mpi["version"].split()) if mpi["loaded"] else "not loaded"))
        if mpi["loaded"]:
            rows.append(("", mpi["path"]))
            if mpi.get("initialized"):
                rows.append(("it takes GPU buffers itself", "yes" if mpi["cuda"] else "no"))
    if driver := report.get("driver"):
        what = "emulated, " if driver["emulated"] else ""
        rows.append(("CUDA driver", f"{what}{driver['version']}, {driver['path']}" if driver["found"] else "none"))
    if mps := report.get("mps"):
        rows.append(("MPS", f"active ({mps['pipe_directory']})" if mps["active"] else "not active"))
    if process := report.get("process"):
        rows.append(("/dev/shm", f"{_gib(process['shm_bytes'])}, {_gib(process['shm_free_bytes'])} free"))
        rows.append(("container", process["container"] or "no"))
        rows.append(("PID namespaces", str(process["pid_namespaces"])))
        rows.append(("CUDA_VISIBLE_DEVICES", process["visible_devices"] or "not set"))
        locked = process["memlock_bytes"]
        rows.append(("lockable memory", "unlimited" if locked is None else _gib(locked)))
    for what, value in rows:
        table.add_row(what, Text(value))  # not markup: a path may have brackets
    console.print(table)


def _print_gpus(console: Console, report: dict[str, Any]) -> None:
    gpus = report.get("gpus") or []
    if not gpus:
        return
    table = Table(title="GPUs", box=box.SIMPLE_HEAD)
    for name in ("", "name and UUID", "memory", "free"):
        table.add_column(name, no_wrap=True)
    for gpu in gpus:
        name = f"{gpu['name']} (compute capability {gpu['capability']})\n{gpu['uuid']}"
        table.add_row(str(gpu["ordinal"]), Text(name), _gib(gpu["total_bytes"]), _gib(gpu["free_bytes"]))
    console.print(table)
    opened = {(one["exporter"], one["importer"]): one for one in (report.get("ipc") or {}).get("opened", [])}
    table = Table(title="memory of one process opened by another (IPC) / peer access", box=box.SIMPLE_HEAD)
    table.add_column("owner")
    for gpu in gpus:
        table.add_column(f"GPU {gpu['ordinal']}", justify="center", no_wrap=True)
    for owner in gpus:
        cells = [f"GPU {owner['ordinal']}"]
        for user in gpus:
            tried = opened.get((owner["uuid"], user["uuid"]))
            ipc = "-" if tried is None else "[green]yes[/]" if tried["ok"] else "[red]no[/]"
            access = (
                "same" if owner is user else "yes" if report["peer_access"][user["ordinal"]][owner["ordinal"]] else "no"
            )
            cells.append(f"{ipc} / {access}")
        table.add_row(*cells)
    console.print(table)


def _print_settings(console: Console, report: dict[str, Any]) -> None:
    settings = report.get("settings") or {}
    if not settings.get("rows"):
        return
    table = Table(title="settings", box=box.SIMPLE_HEAD)
    table.add_column("name", no_wrap=True)
    for name in ("value", "origin", "meaning"):
        table.add_column(name, overflow="fold")
    for row in settings["rows"]:
        style = "bold" if row["origin"] != "default" else None
        table.add_row(*(Text(row[column]) for column in ("name", "value", "origin", "help")), style=style)
    console.print(table)


def _print_coverage(console: Console, report: dict[str, Any]) -> None:
    """How many procedures of this MPI each route has, and which go between GPUs; --json lists them all."""
    lacking = set(report.get("lacking") or [])
    coverage = [one for one in report.get("coverage") or [] if one["procedure"] not in lacking]
    if not coverage:
        return
    counts: dict[str, int] = {}
    for one in coverage:
        counts[one["route"]] = counts.get(one["route"], 0) + 1
    table = Table(title="MPI procedures by route", box=box.SIMPLE_HEAD)
    table.add_column("route")
    table.add_column("procedures", justify="right")
    for route, count in sorted(counts.items(), key=lambda item: -item[1]):
        table.add_row(Text(route), str(count))
    console.print(table)
    if lacking:
        console.print(f"this MPI lacks {len(lacking)} more that Crosslane knows", highlight=False)
    if direct := [one["procedure"] for one in coverage if one["route"] == "gpu"]:
        console.print(f"between GPUs (route gpu): {', '.join(direct)}", highlight=False)
    if messages := [one["procedure"] for one in coverage if one["route"] == "message"]:
        console.print(f"read between GPUs of a node (route message): {', '.join(messages)}", highlight=False)
    if enqueued := [one["on_stream"] for one in coverage if "on_stream" in one]:
        console.print(f"between GPUs, on a stream: {', '.join(enqueued)}", highlight=False)
