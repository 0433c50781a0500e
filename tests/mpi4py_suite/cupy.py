"""The part of CuPy that mpi4py's own test suite uses, over the driver API: arrays in emulated or real GPUs' memory.

CuPy itself needs the CUDA runtime's undocumented side, which the emulated driver does not have. Arithmetic is NumPy's,
on copies. It must not know MPI or Crosslane. Used by tools/test-mpi4py alone.
"""

from __future__ import annotations

import ctypes
import os
import types
from collections.abc import Iterator
from typing import Any

import numpy as np

__version__ = "13.0.0"
__path__ = [os.path.dirname(__file__)]  # noqa: PTH120 - the suite prints it

_LEGACY_STREAM = ctypes.c_void_p(1)


class _Gpu:
    """The rank's GPU: its primary context, made at the first array."""

    def __init__(self) -> None:
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.context = ctypes.c_void_p()
        rank = int(os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ.get("PMI_RANK") or 0)
        count, device = ctypes.c_int(), ctypes.c_int()
        self.call("cuInit", 0)
        self.call("cuDeviceGetCount", ctypes.byref(count))
        self.call("cuDeviceGet", ctypes.byref(device), rank % count.value)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), device)

    def call(self, name: str, *arguments: Any) -> None:
        result = getattr(self.driver, name)(*arguments)
        if result != 0:
            raise RuntimeError(f"{name} failed with {result}")

    def enter(self) -> None:
        """For the calling thread."""
        self.call("cuCtxSetCurrent", self.context)


class _Memory:
    """An allocation."""

    gpu: _Gpu | None = None

    def __init__(self, size: int) -> None:
        _Memory.gpu = _Memory.gpu or _Gpu()
        self.address = ctypes.c_uint64()
        self.gpu.enter()
        self.gpu.call("cuMemAlloc_v2", ctypes.byref(self.address), ctypes.c_size_t(max(size, 1)))

    def __del__(self) -> None:
        if self.gpu is not None and self.address.value:
            self.gpu.driver.cuMemFree_v2(self.address)

    def write(self, data: np.ndarray) -> None:
        self.gpu.enter()
        if data.nbytes > 0:
            source = ctypes.c_void_p(data.ctypes.data)
            self.gpu.call("cuMemcpyHtoD_v2", self.address, source, ctypes.c_size_t(data.nbytes))
            # From pageable memory the copy returns once the source was read.
            self.gpu.call("cuStreamSynchronize", _LEGACY_STREAM)

    def read(self, data: np.ndarray) -> None:
        self.gpu.enter()
        if data.nbytes > 0:
            target = ctypes.c_void_p(data.ctypes.data)
            self.gpu.call("cuMemcpyDtoH_v2", target, self.address, ctypes.c_size_t(data.nbytes))


class ndarray:  # noqa: N801 - CuPy's name
    """An array, or a view of one. The mirror on the host has the same layout, for NumPy to compute with."""

    __hash__ = None

    def __init__(self, memory: _Memory, whole: np.ndarray, mirror: np.ndarray) -> None:
        self._memory, self._whole, self._mirror = memory, whole, mirror
        self.shape, self.dtype, self.size, self.itemsize = mirror.shape, mirror.dtype, mirror.size, mirror.itemsize

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        offset = self._mirror.ctypes.data - self._whole.ctypes.data
        return {
            "version": 3,
            "data": (self._memory.address.value + offset if self.size > 0 else 0, False),
            "typestr": self.dtype.str,
            "shape": self.shape,
            "strides": None if self._mirror.flags.c_contiguous else self._mirror.strides,
            "stream": 1,
        }

    def get(self) -> np.ndarray:
        """A copy on the host."""
        self._memory.read(self._whole)
        return self._mirror.copy()

    def set(self, values: Any) -> None:
        """Overwrites all."""
        self._memory.read(self._whole)
        self._mirror[...] = np.asarray(values).astype(self.dtype)
        self._memory.write(self._whole)

    def fill(self, value: Any) -> None:
        self.set(value)

    def ravel(self) -> ndarray:
        """A view where that is possible, as CuPy's."""
        return ndarray(self._memory, self._whole, self._mirror.reshape(-1))

    @property
    def T(self) -> ndarray:  # noqa: N802 - CuPy's name
        """The transpose, a view."""
        return ndarray(self._memory, self._whole, self._mirror.T)

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.get())

    def __eq__(self, other: object) -> Any:
        return self.get() == (other.get() if isinstance(other, ndarray) else other)

    def __getitem__(self, index: Any) -> Any:
        part = self._mirror[index]
        return ndarray(self._memory, self._whole, part) if isinstance(part, np.ndarray) else self.get()[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        ndarray(self._memory, self._whole, self._mirror[index, ...]).set(
            value.get() if isinstance(value, ndarray) else value
        )


def _made(values: np.ndarray) -> ndarray:
    whole = np.array(values, order="C", copy=True)
    memory = _Memory(whole.nbytes)
    memory.write(whole)
    return ndarray(memory, whole, whole)


def array(values: Any, dtype: Any = None) -> ndarray:
    """A copy in GPU memory; ValueError for long double, which GPUs do not have."""
    host = np.asarray(values)
    host = host if dtype is None else host.astype(dtype)  # -1 wraps where elements are unsigned
    if host.dtype.char in "gG":
        raise ValueError(f"unsupported dtype {host.dtype}")
    return _made(host)


def asarray(values: Any, dtype: Any = None) -> ndarray:
    """The array itself, or a copy in GPU memory."""
    return values if isinstance(values, ndarray) else array(values, dtype)


def zeros(shape: Any, dtype: Any = "d") -> ndarray:
    """Zeros in GPU memory."""
    return _made(np.zeros(shape, dtype))


def ones(shape: Any, dtype: Any = "d") -> ndarray:
    """Ones in GPU memory."""
    return _made(np.ones(shape, dtype))


class _Stream:
    def synchronize(self) -> None:
        """Every copy here is complete when it returns."""


cuda = types.SimpleNamespace(runtime=types.SimpleNamespace(is_hip=False), get_current_stream=_Stream)
