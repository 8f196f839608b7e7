"""Memory that the host and kernels share, as arrays of others without a copy."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Callable, SupportsIndex

from . import _hostcall

if TYPE_CHECKING:
    import numpy as np


def _lengths(shape: SupportsIndex | Iterable[SupportsIndex]) -> tuple[int, ...]:
    if isinstance(shape, Iterable):
        return tuple(operator.index(length) for length in shape)
    return (operator.index(shape),)


class Buffer:
    """Memory that the host and the kernels of a device access at the same time.

    ``numpy.asarray(buffer)``, ``torch.from_dlpack(buffer)`` and, on a CUDA device, ``cupy.asarray(buffer)`` are the same memory, which
    stays as long as one of them does.
    ``buffer.address`` is where kernels find it.
    """

    def __init__(self, allocate: Callable[[int], _hostcall.RawBuffer], shape: SupportsIndex | Iterable[SupportsIndex], dtype: Any, is_cuda: bool) -> None:
        import numpy as np

        self._shape = _lengths(shape)
        self._dtype: np.dtype[Any] = np.dtype(dtype)
        if self._dtype.hasobject:
            raise TypeError("kernels cannot use Python's objects: take a dtype of numbers")
        if any(length < 0 for length in self._shape):
            raise ValueError(f"a shape has no negative lengths: {self._shape}")
        self._nbytes: int = math.prod(self._shape) * self._dtype.itemsize
        self._raw = allocate(self._nbytes)
        self._is_cuda = is_cuda

    # None of these can be set: arrays that are made later would lie where there is no memory.

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._dtype

    @property
    def nbytes(self) -> int:
        return self._nbytes

    @property
    def address(self) -> int:
        """Where kernels find it."""
        return self._raw.address()

    @property
    def __array_interface__(self) -> dict[str, Any]:
        described = self.dtype.descr if self.dtype.names else [("", self.dtype.str)]
        return {
            "version": 3,
            "shape": self.shape,
            "typestr": self.dtype.str,
            "descr": described,
            "data": (self._raw.host_address(), False),
        }

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if not self._is_cuda:
            raise AttributeError("the buffer is not memory of a CUDA device")
        return {**self.__array_interface__, "data": (self.address, False), "stream": None}

    def __dlpack_device__(self) -> tuple[int, int]:
        # kDLCPU.
        return (1, 0)

    def __dlpack__(self, **options: Any) -> Any:
        import numpy as np

        return np.asarray(self).__dlpack__(**options)

    def __len__(self) -> int:
        return self.shape[0]

    def _argument(self) -> _hostcall.RawBuffer:
        return self._raw

    def __repr__(self) -> str:
        return f"<hostcall.Buffer {self.shape} of {self.dtype} at {self.address:#x}>"
