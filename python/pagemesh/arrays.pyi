from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from .sync import OwnLock

__all__ = ["Array", "Release", "Sequential", "array", "attach"]

_Merge = Literal["sum", "min", "max", "or", "replace"]

@dataclass(frozen=True)
class Sequential:
    manager: Literal["dynamic", "fixed"] = "dynamic"
    window: float | None = None

@dataclass(frozen=True)
class Release: ...

class Array(np.ndarray[Any, np.dtype[Any]]):
    @property
    def name(self) -> str: ...
    def unlink(self) -> None: ...
    def advise(
        self, advice: Literal["normal", "sequential", "random", "willneed", "dontneed"]
    ) -> None: ...
    def reduce(self, merge: _Merge) -> None: ...
    def accumulate(self, values: ArrayLike, merge: _Merge = "sum") -> None: ...
    def lock(self, number: int = 1) -> OwnLock: ...
    def barrier(self, parties: int, number: int = 0, timeout: float | None = None) -> None: ...
    def slice_of(self, rank: int, size: int) -> Array: ...

def array(
    name: str,
    shape: int | tuple[int, ...],
    dtype: DTypeLike = ...,
    *,
    order: Literal["C", "F"] = "C",
    policy: Sequential | Release | Literal["sequential", "release"] | None = None,
    mode: int = 0o600,
) -> Array: ...
def attach(
    name: str,
    *,
    dtype: DTypeLike | None = None,
    shape: tuple[int, ...] | None = None,
    readonly: bool = False,
) -> Array: ...
