"""MPI from Python with GPU arrays: an all-reduce and a ring of messages, verified on every rank.

The arrays are CuPy's where CuPy is installed and the GPU is a real one, else device_array.py's.
An ordinary mpi4py program: it does not know Crosslane. Start: crosslane run -n 4 -- python gradients.py
"""

from __future__ import annotations

import importlib.util
import sys

import numpy as np
from device_array import DeviceArray, choose_gpu
from mpi4py import MPI

LENGTH = 100_000


def main() -> int:
    """What every rank does; the exit status."""
    world = MPI.COMM_WORLD
    gpu = choose_gpu(world.rank)
    to_gpu, kind = DeviceArray, "ctypes"
    if importlib.util.find_spec("cupy") and "Emulated" not in gpu:
        import cupy  # noqa: PLC0415 - only where there is a GPU for it

        cupy.cuda.Device(world.rank % cupy.cuda.runtime.getDeviceCount()).use()
        to_gpu, kind = cupy.asarray, "CuPy"

    def gradient(rank: int) -> np.ndarray:
        return np.arange(LENGTH, dtype=np.float64) + 0.25 * rank

    mine, total, received = to_gpu(gradient(world.rank)), to_gpu(np.zeros(LENGTH)), to_gpu(np.zeros(LENGTH))
    if kind == "CuPy":
        cupy.cuda.get_current_stream().synchronize()  # MPI may read only what the GPU has finished writing

    world.Allreduce(mine, total, op=MPI.SUM)
    wrong = np.count_nonzero(total.get() != sum(gradient(rank) for rank in range(world.size)))

    left, right = (world.rank - 1) % world.size, (world.rank + 1) % world.size
    request = world.Irecv(received, source=left)
    world.Send(mine, dest=right)
    request.Wait()
    wrong += np.count_nonzero(received.get() != gradient(left))

    wrong = world.allreduce(int(wrong))
    if world.rank == 0:
        verdict = f"WRONG: {wrong} values" if wrong else f"verified {LENGTH} sums and a ring of {kind} arrays"
        print(f"mpi4py: {verdict}, on {world.size} ranks")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
