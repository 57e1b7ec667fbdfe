from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import DTypeLike

__all__ = ["Array", "Sequential", "array", "attach"]

@dataclass(frozen=True)
class Sequential:
    manager: Literal["dynamic", "fixed"] = "dynamic"
    window: float | None = None

class Array(np.ndarray[Any, np.dtype[Any]]):
    @property
    def name(self) -> str: ...
    def unlink(self) -> None: ...
    def advise(
        self, advice: Literal["normal", "sequential", "random", "willneed", "dontneed"]
    ) -> None: ...
    def slice_of(self, rank: int, size: int) -> Array: ...

def array(
    name: str,
    shape: int | tuple[int, ...],
    dtype: DTypeLike = ...,
    *,
    order: Literal["C", "F"] = "C",
    policy: Sequential | Literal["sequential"] | None = None,
    mode: int = 0o600,
) -> Array: ...
def attach(
    name: str,
    *,
    dtype: DTypeLike | None = None,
    shape: tuple[int, ...] | None = None,
    readonly: bool = False,
) -> Array: ...
