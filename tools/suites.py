"""How the tools that run programs of others start them: as MPI jobs by tests/run_mpi.sh, from the release build."""

from __future__ import annotations

import os
import pathlib
import subprocess
from collections.abc import Sequence

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Ranks that wait give their core to others: there may be fewer cores than ranks.
POLITE = {"OMPI_MCA_mpi_yield_when_idle": "1", "MPIR_CVAR_POLLS_BEFORE_YIELD": "1"}


def run(
    mpi: str,
    command: Sequence[str],
    *,
    folder: pathlib.Path,
    ranks: int,
    seconds: int = 600,
    crosslane: bool = True,
    managed_heap: bool = False,
    settings: Sequence[str] = (),
) -> subprocess.CompletedProcess[str]:
    """Runs a program on two emulated GPUs, or with CROSSLANE_GPU=auto on the machine's.

    managed_heap: what it allocates is GPU memory (tests/applications/managed_heap.cpp).
    settings: NAME=value, for its ranks alone.
    """
    job = [str(ROOT / "tests" / "run_mpi.sh"), "--family", mpi, "--build", str(ROOT / "build" / "release")]
    # GPUs without Crosslane too: programs may count them before they look where their memory is to be.
    job += ["--gpus", "2", "--ranks", str(ranks), "--timeout", str(seconds)]
    job += ["--preload", "on" if crosslane else "off", "--heap", "managed" if managed_heap else "host"]
    for setting in settings:
        job += ["--env", setting]
    environment = dict(os.environ) | POLITE
    if environment.pop("CROSSLANE_GPU", "") == "auto":
        environment["CROSSLANE_TEST_GPU"] = "real"
    return subprocess.run(
        [*job, "--", *command],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
