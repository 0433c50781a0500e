"""The environment that ranks get: what is preloaded, and Crosslane's settings."""

from __future__ import annotations

import os
import re
from pathlib import Path

from crosslane import libraries
from crosslane.problem import Problem

EMULATED = re.compile(r"emulated:([1-9]|[1-5]\d|6[0-4])(?::(.+))?", re.ASCII)  # the driver's own limit: 64


def gpu_setting(gpus: str | None) -> str | None:
    """The value of CROSSLANE_GPU for --gpus; None leaves the user's environment as it is."""
    if gpus is None:
        return None
    if gpus == "real":
        return "auto"
    if gpus == "none":
        return "none"
    match = EMULATED.fullmatch(gpus)
    if not match:
        raise Problem(
            f"--gpus {gpus} is not understood",
            "write real, none, or emulated:<GPUs a node, 1 to 64>[:<topology file>], e.g. emulated:4",
        )
    if match[2]:
        topology = Path(match[2]).absolute()  # the ranks' folder may be another
        if not topology.is_file():
            raise Problem(f"topology file not found: {match[2]}", "check the path after emulated:<GPUs a node>:")
        return f"emulated:{match[1]}:{topology}"
    return gpus


def for_ranks(family: str, gpus: str | None, log: str | None, mpi: Path | None = None) -> dict[str, str]:
    """The variables that the ranks need beyond what they inherit from the launcher; `mpi` is their MPI's library.

    Settings of the caller's environment are named too: Open MPI does not hand them to other nodes.
    """
    environment = {name: value for name, value in os.environ.items() if name.startswith("CROSSLANE_")}
    setting = gpu_setting(gpus)
    if setting is not None:
        environment["CROSSLANE_GPU"] = setting
    if log:
        environment["CROSSLANE_LOG"] = log
    environment["LD_PRELOAD"] = preload(family, environment.get("CROSSLANE_GPU", "auto"), mpi)
    return environment


def preload(family: str, gpu: str, mpi: Path | None = None) -> str:
    """LD_PRELOAD's value: what the user preloads already stays, and stays first (tools, sanitizers).

    But for libraries of ours, which may be for another MPI, and our emulated GPUs: the first of each kind would win.
    """
    ours = [libraries.interposed(family, mpi)]
    if gpu.startswith("emulated:"):
        ours.insert(0, libraries.emulated_driver())
    for path in ours:
        if re.search(r"[:\s$]", str(path)):
            raise Problem(
                f"{path} cannot be preloaded: LD_PRELOAD separates names with colons and blanks",
                "install Crosslane in a folder whose path has neither",
            )
    given = [word for word in re.split(r"[:\s]+", os.environ.get("LD_PRELOAD", "")) if word and not _is_ours(word)]
    return ":".join(given + [str(path) for path in ours])


def _is_ours(preloaded: str) -> bool:
    path = Path(preloaded)
    return path.name.startswith("libcrosslane_") or (path.name == "libcuda.so.1" and path.parent.name == "emulated")
