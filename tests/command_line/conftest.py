"""What the command line's tests share: programs compiled against each MPI, libraries to preload, the command itself.

The libraries are the build's where there is one (CROSSLANE_TEST_BUILD, or build/release), else stand-ins: these tests
are about the command line. What the libraries do is tested elsewhere.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import typer.testing

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
FAMILIES = ("openmpi", "mpich")
TIMEOUT_S = 180  # of a machine with nothing else to do a few seconds; the other tests run beside these

# Before anything imports the package in this process, too.
sys.path.insert(0, str(ROOT / "python"))
from crosslane.cli import app  # noqa: E402 - found there


def compile_c(source: Path | str, to: Path, *options: str, compiler: str = "gcc") -> Path:
    """Compiles a file of programs/, or a text, and returns the result."""
    to.parent.mkdir(parents=True, exist_ok=True)
    text = source.read_text() if isinstance(source, Path) else source
    subprocess.run(
        [compiler, "-x", "c", "-", "-x", "none", "-o", str(to), *options],
        input=text,
        text=True,
        check=True,
        timeout=TIMEOUT_S,
    )
    return to


def wrapper(family: str) -> str:
    """The compiler wrapper of a family; skips the test where it is not installed."""
    found = shutil.which(f"mpicc.{family}") or shutil.which("mpicc")
    if found is None:
        pytest.skip(f"no compiler wrapper of {family}")
    version = subprocess.run([found, "-show"], capture_output=True, text=True, check=False, timeout=TIMEOUT_S).stdout
    if ("mpich" in version) != (family == "mpich"):
        pytest.skip(f"no compiler wrapper of {family}")
    return found


@dataclass(frozen=True)
class Result:
    """What a command did."""

    status: int
    out: str
    err: str

    def ranks(self) -> list[dict]:
        """What ranks.c printed, by rank."""
        rows = [json.loads(line) for line in self.out.splitlines() if line.startswith("{")]
        return sorted(rows, key=lambda row: row["rank"])


def _descendants(process: int) -> set[int]:
    """That process, and those that it has started, directly or not."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parents[int(folder.name)] = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])

    def belongs(pid: int) -> bool:
        while pid not in {0, process}:
            pid = parents.get(pid, 0)
        return pid == process

    return {pid for pid in parents if belongs(pid)}


@contextlib.contextmanager
def begun(words: list[str], environment: dict[str, str], ignored: str = "") -> Iterator[subprocess.Popen]:
    """A process that signals shall end, with what it starts: nothing of it is left behind a test that fails.

    Whoever runs the tests may ignore some (nohup, a shell's background), and what they start then does, too: here these
    are as by default, but for the one that is to be ignored.
    """
    defaults = ["env", "--default-signal=HUP,INT,QUIT,TERM", *([f"--ignore-signal={ignored}"] if ignored else [])]
    with subprocess.Popen(
        [*defaults, *words], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        try:
            yield process
        finally:
            for pid in _descendants(process.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def _has_words(pid: int, words: tuple[object, ...]) -> bool:
    with contextlib.suppress(OSError):
        line = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        return line[: len(words)] == [os.fsencode(str(word)) for word in words]
    return False


def alive(pid: int) -> bool:
    """True if it still runs; its launcher's last act may be under way in the kernel, which is waited for."""
    end = time.monotonic() + 60
    while time.monotonic() < end and _runs(pid):
        os.sched_yield()
    return _runs(pid)


def _runs(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in {"Z", "X"}
    return False


def wait_for_ranks(process: subprocess.Popen, count: int, *words: object) -> list[int]:
    """The processes with these first words that a process starts, as soon as there are that many."""
    found: list[int] = []
    end = time.monotonic() + TIMEOUT_S
    while len(found) != count and time.monotonic() < end and process.poll() is None:
        found = [pid for pid in _descendants(process.pid) if _has_words(pid, words)]
        time.sleep(0.05)
    assert len(found) == count, "it ended early, or has not begun its ranks in time"
    return found


class CommandLine:
    """`crosslane` with an environment of its own."""

    def __init__(self, preload: Path, package: Path = ROOT / "python") -> None:
        # Settings of whoever runs the tests must not decide them; launchers' marks would look like a rank.
        self.environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("CROSSLANE_", "OMPI_", "PMI", "MPI4PY_")) and name != "LD_PRELOAD"
        }
        self.environment |= {"PYTHONPATH": str(package), "CROSSLANE_PRELOAD": str(preload), "COLUMNS": "200"}

    def words(self, *arguments: object) -> list[str]:
        return [sys.executable, "-m", "crosslane", *map(str, arguments)]

    def __call__(self, *arguments: object, **variables: str) -> Result:
        done = subprocess.run(
            self.words(*arguments), env=self.environment | variables, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, check=False, timeout=TIMEOUT_S,
        )  # fmt: skip
        return Result(done.returncode, done.stdout, done.stderr)

    def refuse(self, *arguments: object, **variables: str) -> Result:
        """The same inside this process, for commands that must start nothing: quicker, and starting one fails."""

        def started(*words: object) -> None:
            pytest.fail(f"it started {words}")

        with pytest.MonkeyPatch.context() as patch:
            for name in set(os.environ) - set(self.environment) - {"PYTEST_CURRENT_TEST"}:
                patch.delenv(name)
            for name, value in (self.environment | variables).items():
                patch.setenv(name, value)
            patch.setattr(os, "execvpe", started)
            done = typer.testing.CliRunner().invoke(app, [str(word) for word in arguments], prog_name="crosslane")
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return Result(done.exit_code, done.stdout, done.stderr)


@pytest.fixture(scope="session", autouse=True)
def compiler() -> str:
    """A C compiler, without which nothing here can run."""
    found = shutil.which("gcc")
    if found is None:
        pytest.skip("no C compiler")
    return found


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of this session."""
    return tmp_path_factory.mktemp("crosslane")


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    """Each family of MPI."""
    return request.param


@pytest.fixture(scope="session")
def stand_ins(folder: Path) -> Path:
    """The lib folder of a prefix with stand-ins for every library."""
    lib = folder / "stand-ins" / "lib"
    for name in FAMILIES:
        compile_c(HERE / "programs" / "interposed.c", lib / f"libcrosslane_{name}.so", "-shared", "-fPIC")
    soname = "-Wl,-soname,libcuda.so.1"
    compile_c("int crosslane_stand_in;", lib / "emulated" / "libcuda.so.1", "-shared", "-fPIC", soname)
    return lib


@pytest.fixture(scope="session")
def libraries(stand_ins: Path) -> Path:
    """The lib folder of the build where it is complete, else of the stand-ins."""
    build = Path(
        os.environ.get("CROSSLANE_TEST_BUILD") or os.environ.get("CROSSLANE_BUILD_DIR") or ROOT / "build" / "release"
    )
    names = [f"libcrosslane_{name}.so" for name in FAMILIES] + ["emulated/libcuda.so.1"]
    return build / "lib" if all((build / "lib" / name).exists() for name in names) else stand_ins


@pytest.fixture(scope="session")
def crosslane(libraries: Path) -> CommandLine:
    """The command line with the libraries."""
    return CommandLine(libraries)


@pytest.fixture(scope="session")
def built(crosslane: CommandLine, libraries: Path, stand_ins: Path) -> CommandLine:
    """The command line with the real libraries."""
    if libraries == stand_ins:
        pytest.skip("the libraries are not built")
    return crosslane


@pytest.fixture(scope="session")
def _compiled() -> dict[str, Path]:
    return {}


@pytest.fixture
def program(family: str, folder: Path, _compiled: dict[str, Path]) -> Path:
    """ranks.c, compiled against this family."""
    if family not in _compiled:
        source = HERE / "programs" / "ranks.c"
        _compiled[family] = compile_c(source, folder / f"ranks_{family}", compiler=wrapper(family))
    return _compiled[family]
