"""GPU memory by the CUDA driver alone, for programs without CuPy: an array that mpi4py takes like any CUDA array.

What makes it one is the property __cuda_array_interface__, by which CuPy, PyTorch and Numba hand out their arrays too.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

_driver = ctypes.CDLL("libcuda.so.1")


def _call(name: str, *arguments: Any) -> None:
    result = getattr(_driver, name)(*arguments)
    if result != 0:
        raise RuntimeError(f"{name} failed with CUDA error {result}")


def choose_gpu(rank: int) -> str:
    """Makes this rank's GPU current: ranks share the GPUs of their node in turn. Returns its name."""
    count, context, name = ctypes.c_int(), ctypes.c_void_p(), ctypes.create_string_buffer(128)
    _call("cuInit", 0)
    _call("cuDeviceGetCount", ctypes.byref(count))
    _call("cuDevicePrimaryCtxRetain", ctypes.byref(context), rank % count.value)
    _call("cuCtxSetCurrent", context)
    _call("cuDeviceGetName", name, len(name), rank % count.value)
    return name.value.decode()


class DeviceArray:
    """A contiguous array in GPU memory, with the shape and type of a NumPy array, whose contents it gets."""

    def __init__(self, values: np.ndarray) -> None:
        values = np.ascontiguousarray(values)
        self.shape, self.dtype, self.bytes = values.shape, values.dtype, ctypes.c_size_t(values.nbytes)
        self.address = ctypes.c_uint64()
        _call("cuMemAlloc_v2", ctypes.byref(self.address), self.bytes)
        _call("cuMemcpyHtoD_v2", self.address, ctypes.c_void_p(values.ctypes.data), self.bytes)
        _call("cuCtxSynchronize")  # MPI may read only what the GPU has finished writing

    def __del__(self) -> None:
        if self.address.value:
            _driver.cuMemFree_v2(self.address)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.address.value, False),
            "version": 3,
        }

    def get(self) -> np.ndarray:
        """A copy in host memory."""
        values = np.empty(self.shape, self.dtype)
        _call("cuMemcpyDtoH_v2", ctypes.c_void_p(values.ctypes.data), self.address, self.bytes)
        return values
