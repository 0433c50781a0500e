"""The rules of the house that can be read off the sources. Each is a function from a tree to its violations.

A violation is one line of text that names file, line and rule, so that a failing test reads like a compiler's output.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from pathlib import Path

from source import Source, sources

HERE = Path(__file__).resolve().parent


def rows(file: str) -> list[list[str]]:
    """The rows of a list beside this file: columns parted by " | ", comments and empty lines left out."""
    lines = (HERE / file).read_text(encoding="utf-8").splitlines()
    return [line.split(" | ") for line in lines if line.strip() and not line.startswith("#")]


ORDER = [row[0] for row in rows("order.txt")]


def _at(source: Source, line: int, message: str) -> str:
    return f"{source.path}:{line}: {message}"


def _code_files(root: Path) -> list[Source]:
    return sources(root, "src", "include", "tests", "bench", "examples", "simulate")


# 1 ------------------------------------------------------------------------------------------------------------------


def folder_order(root: Path) -> Iterator[str]:
    """A folder includes only itself and the folders above it; include/crosslane/ is above all of them."""
    for source in sources(root, "src", "include"):
        in_src = source.path.parts[0] == "src"
        if in_src and source.folder and source.folder not in ORDER:
            yield _at(source, 1, f"folder {source.folder} is not in tests/layering/order.txt")
            continue
        reach = ORDER.index(source.folder) if source.folder else -1
        for include in source.includes:
            head, _, rest = include.name.partition("/")
            if rest and head in ORDER and ORDER.index(head) > reach:
                yield _at(source, include.line, f"includes {include.name}, which is below it in the order of folders")
            elif include.quoted and head not in {*ORDER, "crosslane"}:
                yield _at(source, include.line, f'includes "{include.name}": name it from src/, as "folder/file.h"')


# 2 ------------------------------------------------------------------------------------------------------------------

_MPI_CALL = re.compile(r"(?<![\w.])(P?MPIX?_[A-Z]\w*)\s*\(")
_CUDA_CALL = re.compile(r"\b(cu[A-Z]\w*)\s*\(")
_CUDA_RUNTIME = re.compile(r"\b(cuda[A-Z]\w*)\s*\(|<<<")


def mpi_calls(root: Path) -> Iterator[str]:
    """MPI's symbols are called in mpi/ and interpose/ alone; elsewhere, through the table of functions."""
    for source in sources(root, "src"):
        if source.folder not in {"mpi", "interpose"}:
            for line, match in source.matches(_MPI_CALL):
                yield _at(source, line, f"{match[1]} is for mpi/ and interpose/; elsewhere use the table of functions")


def cuda_calls(root: Path) -> Iterator[str]:
    """CUDA's driver symbols are called in gpu/ alone; the CUDA runtime nowhere but in the emulated one."""
    for source in sources(root, "src"):
        if source.folder != "gpu":
            for line, match in source.matches(_CUDA_CALL):
                yield _at(source, line, f"{match[1]} is for gpu/")
        if source.below_src.startswith("gpu/emulated/runtime/"):
            continue
        for line, match in source.matches(_CUDA_RUNTIME):
            yield _at(source, line, f"{match[0].strip('( ')} is the CUDA runtime; only the driver API is used")


def mpi_header(root: Path) -> Iterator[str]:
    """<mpi.h> is included in mpi/, interpose/ and api/ alone."""
    for source in sources(root, "src"):
        if source.folder not in {"mpi", "interpose", "api"}:
            for include in source.includes:
                if include.name == "mpi.h":
                    yield _at(source, include.line, "<mpi.h> is for mpi/, interpose/ and api/")


# 3 ------------------------------------------------------------------------------------------------------------------

_CONDITION = re.compile(r"^\s*#\s*(?:if|ifdef|ifndef|elif|elifdef|elifndef)\b(.*)$", re.DOTALL)
_PLATFORM = {"CUDA", "CUDACC", "NVCC", "MPI", "MPIX", "OMPI", "OPEN", "OPENMPI", "MPICH", "SMPI", "SIMGRID"}


def platform_conditions(root: Path) -> Iterator[str]:
    """Conditions on CUDA, MPI or SMPI macros stand in gpu/, mpi/, kernel/block.h and kernel/*.cu alone."""
    for source in sources(root, "src"):
        if source.folder in {"gpu", "mpi"} or source.below_src == "kernel/block.h":
            continue
        if source.folder == "kernel" and source.path.suffix == ".cu":
            continue
        for line, directive in source.directives:
            condition = _CONDITION.match(directive)
            for name in re.findall(r"[A-Za-z_]\w*", condition[1]) if condition else []:
                if _PLATFORM & set(name.upper().split("_")):
                    yield _at(source, line, f"a condition on {name} is for gpu/, mpi/ and kernel/block.h")


# 5, 6 ---------------------------------------------------------------------------------------------------------------

_BLOCKS = re.compile(
    r"\b(u?sleep|nanosleep|clock_nanosleep|sleep_for|sleep_until|sched_yield|yield|pause|ppoll|poll|pselect|select"
    r"|epoll_p?wait|sigwait\w*|sem_(?:timed)?wait|pthread_(?:cond_(?:timed)?wait|join|barrier_wait|yield)|waitpid|_mm_pause)\s*\("
    r"|\b(condition_variable(?:_any)?|counting_semaphore|binary_semaphore|latch|std::barrier|SYS_futex|std::future|std::async)\b"
    r"|(?:\.|->)\s*(wait|wait_for|wait_until)\s*\("
    r"|\w*[Tt]hreads?_?(?:\.|->)\s*join\s*\("
    r"|(?:\.|->)\s*(Wait|Waitall|Waitany|Waitsome|Probe|Mprobe)\s*\("
)
# What the engine offers to everybody: waiting there is the point.
_ENGINE_WAITS = re.compile(r"\bengine(?:\(\)|_)?\s*(?:\.|->)\s*wait\s*\(")
_SYNCHRONISE = re.compile(
    r"\b(?:cuda|cu)?(?:Stream|Ctx|Event|Device)Synchronize\w*\b|\b(?:stream|ctx|context|event|device)_synchroni[sz]e\b"
)


def blocking(root: Path, allowed: list[list[str]] | None = None) -> Iterator[str]:
    """Nothing outside engine/ blocks, polls or sleeps, but for the rows of blocking.txt."""
    allowed = rows("blocking.txt") if allowed is None else allowed
    for source in sources(root, "src"):
        if source.folder == "engine":
            continue
        for line, match in source.matches(_BLOCKS):
            text = source.code[line - 1]
            if _ENGINE_WAITS.search(text):
                continue
            if any(fnmatch(source.below_src, file) and re.search(pattern, text) for file, pattern, _ in allowed):
                continue
            yield _at(source, line, f"{match[0].strip(' (')} blocks, polls or sleeps; that is for engine/")


def stream_synchronise(root: Path) -> Iterator[str]:
    """No stream, event or context is synchronised anywhere; only the emulated driver has the entry points."""
    for source in sources(root, "src"):
        if not source.below_src.startswith("gpu/emulated/"):
            for line, match in source.matches(_SYNCHRONISE):
                yield _at(source, line, f"{match[0]}: completion is a word that the GPU writes, never a synchronise")


# 8, 9 ---------------------------------------------------------------------------------------------------------------

_DEFINE = re.compile(r"^\s*#\s*define\s+(\w+)")


def macro_names(root: Path, allowed: list[list[str]] | None = None) -> Iterator[str]:
    """Every macro of the library, benchmarks and examples starts with CROSSLANE_, but for the rows of macros.txt."""
    patterns = [row[0] for row in (rows("macros.txt") if allowed is None else allowed)]
    for source in sources(root, "src", "include", "bench", "examples", "simulate"):
        for line, directive in source.directives:
            match = _DEFINE.match(directive)
            if match and not match[1].startswith("CROSSLANE_") and not any(re.search(p, match[1]) for p in patterns):
                yield _at(source, line, f"macro {match[1]} does not start with CROSSLANE_")


def opening_comment(root: Path) -> Iterator[str]:
    """A file opens with a comment: what it is, what it implements, what it must not know."""
    for source in _code_files(root):
        if not source.text.lstrip().startswith(("//", "/*")):
            yield _at(source, 1, "opens without a comment that says what it is")
    hashed = [path for pattern in ("*.py", "*.sh", "*.cmake", "CMakeLists.txt") for path in root.rglob(pattern)]
    hashed += [path for path in (root / "tools").rglob("*") if path.is_file() and not path.suffix]
    for path in sorted(set(hashed)):
        relative = path.relative_to(root)
        if relative.parts[0] in {"build", ".venv", ".carry", ".git", "dist"} or "__pycache__" in relative.parts:
            continue
        lines = path.read_text(encoding="utf-8").splitlines()
        if lines and lines[0].startswith("#!"):
            lines = lines[1:]
        if lines and not lines[0].startswith(("#", '"""', "'''")):
            yield f"{relative}:1: opens without a comment that says what it is"


ALL: list[Callable[[Path], Iterator[str]]] = [
    folder_order,
    mpi_calls,
    cuda_calls,
    mpi_header,
    platform_conditions,
    blocking,
    stream_synchronise,
    macro_names,
    opening_comment,
]
