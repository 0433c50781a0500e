"""Starts bench_startup with and without Crosslane in turns, and says what Crosslane adds and leaves behind.

Usage: startup.py --program P --preload LIBRARY --mpiexec "mpiexec -n 2" [--driver libcuda.so.1] [--runs N] [--csv FILE]
Exit status 1 where a CUDA context, a driver library or an open GPU device is found that is not there without Crosslane.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
from typing import Any

TIMEOUT_S = 60


def start(options: argparse.Namespace, side: str, run: int, *, driver: bool) -> dict[str, Any]:
    """One start; what rank 0 says about it."""
    words = [*shlex.split(options.mpiexec), options.program]
    words += ["--preload", "none" if side == "plain" else options.preload, "--side", side, "--run", str(run)]
    words += ["--driver", options.driver] if driver else []
    words += ["--csv", options.csv] if options.csv else []
    # One GPU: the driver's own start is not what is measured. Settings of the caller must not decide.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CROSSLANE_")}
    environment["CUDA_VISIBLE_DEVICES"] = "0"
    done = subprocess.run(
        words, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0 or not lines:
        raise SystemExit(f"startup: {shlex.join(words)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    said = json.loads(lines[0])
    if bool(said["preloaded"]) != (side != "plain"):
        raise SystemExit(f"startup: the {side} side {'has' if said['preloaded'] else 'lacks'} Crosslane")
    return said


def main() -> int:
    """The measurement."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True)
    parser.add_argument("--preload", required=True)
    parser.add_argument("--mpiexec", required=True)
    parser.add_argument("--driver", default="")
    parser.add_argument("--runs", type=int, default=11)
    parser.add_argument("--csv", default="")
    options = parser.parse_args()

    sides: dict[str, list[dict[str, Any]]] = {"plain": [], "crosslane": []}
    for run in range(1, options.runs + 1):
        for side in sides if run % 2 else reversed(sides):
            sides[side].append(start(options, side, run, driver=False))
    print(f"startup: {sides['plain'][0]['mpi']}, ms, medians of {options.runs} starts in turns (all of them)")
    added = {}
    for key in ("load_ms", "init_ms"):
        for side, runs in sides.items():
            values = [run[key] for run in runs]
            listed = ", ".join(f"{value:.1f}" for value in values)
            print(f"  {side:10} {key:8} {statistics.median(values):8.2f}  ({listed})")
        pairs = zip(sides["crosslane"], sides["plain"], strict=True)
        added[key] = statistics.median(with_it[key] - without[key] for with_it, without in pairs)

    left = []
    for key in ("driver_loaded", "gpu_devices_open"):
        most = {side: max(run[key] for run in runs) for side, runs in sides.items()}
        if most["crosslane"] > most["plain"]:
            left.append(f"{key}: {most['crosslane']}, without Crosslane {most['plain']}")
    if options.driver:
        for side in sides:
            said = start(options, side, 0, driver=True)
            for key in ("contexts_after_init", "contexts_after_calls"):
                print(f"  {side:10} {key}, a driver being loaded: {said[key]}")
                if side == "crosslane" and said[key]:
                    left.append(f"{key}: {said[key]}")
    print(
        f"startup: MPI_Init takes {added['init_ms']:.2f} ms more, loading {added['load_ms']:.2f} ms (medians of the "
        "turns' differences; target: 20 ms); "
        + ("; ".join(left) if left else "no driver library, GPU device or context that was not there without Crosslane")
    )
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
