"""MPI from Python with GPU memory, on the MPIs that pip installs: mpi4py over PyPI's Open MPI and MPICH.

Without arguments it starts itself under `crosslane run` for each MPI that tools/setup unpacked under build/peers, and
exits with 77 (skipped) where there is none, or no mpi4py; --family names one of them, and --program another program to
start so. The ranks get GPU memory by cu* calls from ctypes and pass it to mpi4py by __cuda_array_interface__, as CuPy,
PyTorch and Numba do. It must not know how Crosslane works.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
SKIPPED = 77
TIMEOUT_S = 180
LIBRARIES = {"openmpi": "libmpi.so.40", "mpich": "libmpi.so.12"}


class Gpu:
    """The driver's functions that this needs; each failure ends the program with the call's name."""

    def __init__(self, ordinal: int) -> None:
        self.driver = ctypes.CDLL("libcuda.so.1")
        count, context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuDeviceGetCount", ctypes.byref(count))
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), ordinal % count.value)
        self.call("cuCtxSetCurrent", context)

    def call(self, name: str, *arguments: Any) -> None:
        result = getattr(self.driver, name)(*arguments)
        if result != 0:
            raise RuntimeError(f"{name} failed with {result}")


class DeviceArray:
    """A contiguous array of float64 in GPU memory."""

    def __init__(self, gpu: Gpu, values: list[float]) -> None:
        self.gpu, self.length = gpu, len(values)
        self.host = ctypes.c_double * self.length
        self.address = ctypes.c_uint64()
        gpu.call("cuMemAlloc_v2", ctypes.byref(self.address), ctypes.c_size_t(8 * self.length))
        gpu.call("cuMemcpyHtoD_v2", self.address, self.host(*values), ctypes.c_size_t(8 * self.length))

    def __del__(self) -> None:
        self.gpu.call("cuMemFree_v2", self.address)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": (self.length,),
            "typestr": "<f8",
            "data": (self.address.value, False),
            "version": 3,
            "strides": None,
            "stream": None,
        }

    def values(self) -> list[float]:
        """The contents, in host memory."""
        host = self.host()
        self.gpu.call("cuMemcpyDtoH_v2", host, self.address, ctypes.c_size_t(8 * self.length))
        return list(host)


def rank_main(family: str) -> int:
    """What every rank does; returns how many results were wrong."""
    from mpi4py import MPI  # noqa: PLC0415 - it initializes MPI, which the launching side must not

    expected = "Open MPI" if family == "openmpi" else "MPICH"
    version = MPI.Get_library_version()
    if expected not in version:
        raise RuntimeError(f"the ranks run on {version.splitlines()[0]}, not on {expected}")
    world = MPI.COMM_WORLD
    rank, size = world.rank, world.size
    left, right = (rank - 1) % size, (rank + 1) % size
    gpu = Gpu(rank)
    wrong = 0

    def check(got: list[float], want: list[float], what: str) -> None:
        nonlocal wrong
        if got != want:
            wrong += 1
            print(f"FAILED rank {rank}: {what} of {len(want)} on {expected}", file=sys.stderr)

    def numbers(of: int, length: int) -> list[float]:
        return [float(1000000 * of + i) for i in range(length)]

    for length in (1, 1000, 200000):
        send, receive = DeviceArray(gpu, numbers(rank, length)), DeviceArray(gpu, [0.0] * length)
        request = world.Irecv(receive, source=left, tag=1)
        world.Send(send, dest=right, tag=1)
        request.Wait()
        check(receive.values(), numbers(left, length), "Send and Irecv")
        world.Sendrecv(send, dest=left, recvbuf=receive, source=right)
        check(receive.values(), numbers(right, length), "Sendrecv")
        sums = [float(1000000 * (size * (size - 1) // 2) + size * i) for i in range(length)]
        world.Allreduce(send, receive, op=MPI.SUM)
        check(receive.values(), sums, "Allreduce")
        world.Iallreduce(MPI.IN_PLACE, send).Wait()
        check(send.values(), sums, "Iallreduce in place")
        everything = DeviceArray(gpu, [0.0] * (size * length))
        mine = DeviceArray(gpu, numbers(rank, length))
        world.Allgather(mine, everything)
        check(everything.values(), [x for other in range(size) for x in numbers(other, length)], "Allgather")
        world.Bcast(mine, root=size - 1)
        check(mine.values(), numbers(size - 1, length), "Bcast")
    return world.allreduce(wrong)


def start(family: str, build: Path, ranks: int, gpus: str, program: Path | None) -> int:
    """Runs the ranks, of this program or of another, on one peer; returns their exit status."""
    peer = ROOT / "build" / "peers" / family
    environment = {
        **os.environ,
        "PATH": f"{peer / 'bin'}:{os.environ['PATH']}",
        "LD_LIBRARY_PATH": f"{peer / 'lib'}:{os.environ.get('LD_LIBRARY_PATH', '')}".rstrip(":"),
        "MPI4PY_LIBMPI": str(peer / "lib" / LIBRARIES[family]),
        "PYTHONPATH": str(ROOT / "python"),
        "CROSSLANE_PRELOAD": str(build / "lib"),
        **{f"{name}_ALLOW_RUN_AS_ROOT{suffix}": "1" for name in ("OMPI", "PRTE") for suffix in ("", "_CONFIRM")},
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    }
    if family == "openmpi":
        environment["OPAL_PREFIX"] = str(peer)
        environment["OMPI_MCA_accelerator"] = "null"  # what it can do with CUDA itself must not hide what we cannot
    command = [sys.executable, "-m", "crosslane", "run", "-n", str(ranks), "--gpus", gpus, "--"]
    command += [sys.executable, *([str(program)] if program else [str(Path(__file__).resolve()), "--rank-of", family])]
    return subprocess.run(command, env=environment, timeout=TIMEOUT_S, check=False).returncode


def main() -> int:
    """The launching side, or with --rank-of a rank."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--build", type=Path, default=ROOT / "build" / "dev", help="the build folder whose lib/ is used"
    )
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("--family", choices=LIBRARIES, help="only this MPI; default: all that are there")
    parser.add_argument("--program", type=Path, help="a Python program that the ranks run instead of this one")
    parser.add_argument("--rank-of", choices=LIBRARIES, help="used by this program itself")
    options = parser.parse_args()
    if options.rank_of:
        return 1 if rank_main(options.rank_of) else 0
    if importlib.util.find_spec("mpi4py") is None or importlib.util.find_spec("typer") is None:
        print(f"mpi4py_peers: skipped, {sys.executable} has no mpi4py or no typer; run tools/setup")
        return SKIPPED
    gpus = "real" if os.environ.pop("CROSSLANE_TEST_GPU", "emulated") == "real" else "emulated:2"
    wanted = [options.family] if options.family else LIBRARIES
    peers = [family for family in wanted if (ROOT / "build" / "peers" / family / "bin" / "mpirun").exists()]
    if not peers:
        print("mpi4py_peers: skipped, no MPI under build/peers; run tools/setup")
        return SKIPPED
    failed = 0
    for family in peers:
        status = start(family, options.build.absolute(), options.ranks, gpus, options.program)
        print(f"mpi4py_peers: {family}: {'passed' if status == 0 else f'FAILED with status {status}'}", flush=True)
        failed += status != 0
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
