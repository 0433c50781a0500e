"""A child process that has an interposed library loaded and answers questions: `crosslane_*` functions that give JSON.

In a process of its own, so that a library which crashes while it loads is a finding and not the end of the command.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any

#: A child: loads MPI as plug-ins do, then the library, and answers each line of its input with one function's result.
_PROGRAM = """
import ctypes, os, sys
answers = os.fdopen(os.dup(1), "wb")
os.dup2(2, 1)  # what MPIs print is no answer
library, mpis = sys.argv[1], sys.argv[2:]
for mpi in mpis:
    try:
        ctypes.CDLL(mpi, mode=ctypes.RTLD_LOCAL)
        break
    except OSError:
        pass
crosslane = ctypes.CDLL(library)
for line in sys.stdin:
    name, _, argument = line.rstrip("\\n").partition(" ")
    function = getattr(crosslane, name, None)
    if function is None:
        answers.write(b"null\\n")
        answers.flush()
        continue
    function.restype = ctypes.c_char_p
    function.argtypes = [ctypes.c_char_p] if argument else []
    answers.write(function(*([argument.encode()] if argument else [])).replace(b"\\n", b" ") + b"\\n")
    answers.flush()
"""

_TIMEOUT_S = 120.0


class DiedError(Exception):
    """A child ended instead of answering."""


class Child:
    """A process that has the library loaded."""

    def __init__(self, process: subprocess.Popen[str], said: IO[str]) -> None:
        self.process = process
        self.said = said  # what it printed

    def ask(self, function: str, argument: str = "") -> Any:
        """One function's JSON; None where the library does not export it; DiedError when the process ended."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(f"{function} {argument}".rstrip() + "\n")
            self.process.stdin.flush()
        except OSError:
            pass  # it is dead; its status says why
        else:
            line = self.process.stdout.readline()
            if line.strip():
                return json.loads(line)
        status = self.process.wait(timeout=10)
        self.said.seek(0)
        said = self.said.read().strip()[-2000:]
        how = f"signal {signal.Signals(-status).name}" if status < 0 else f"status {status}"
        raise DiedError(f"it ended with {how}" + (f": {said}" if said else ""))


@contextmanager
def loaded(library: str, mpis: list[str], variables: dict[str, str]) -> Iterator[Child]:
    """A child that has loaded the first of `mpis` that there is, as plug-ins do, and then the library."""
    # A file, as a pipe that nobody empties would stop a talkative MPI.
    with (
        tempfile.TemporaryFile("w+", errors="replace") as said,
        subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, library, *mpis],
            env={**os.environ, **variables},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, encoding="utf-8", errors="replace",
        ) as process,
    ):  # fmt: skip
        # A driver that hangs is a finding too.
        watchdog = threading.Timer(_TIMEOUT_S, process.kill)
        watchdog.start()
        try:
            yield Child(process, said)
            _close(process)
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=30)
        finally:  # at once where this process is to end
            watchdog.cancel()
            process.kill()
            _close(process)


def _close(process: subprocess.Popen[str]) -> None:
    """Its end of input; what a dead one did not read is none of our failures."""
    assert process.stdin is not None
    with suppress(OSError):
        process.stdin.close()
