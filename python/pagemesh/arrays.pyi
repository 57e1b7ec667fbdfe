from dataclasses import dataclass
from types import EllipsisType
from typing import Any, Literal, SupportsIndex, overload

import numpy as np
from numpy.typing import ArrayLike, DTypeLike
from typing_extensions import TypeVar

from .sync import OwnLock

__all__ = ["Array", "Private", "Release", "Sequential", "Views", "array", "attach"]

_Scalar = TypeVar("_Scalar", bound=np.generic)
_DType_co = TypeVar("_DType_co", bound=np.dtype[Any], default=np.dtype[Any], covariant=True)

_Merge = Literal["sum", "min", "max", "or", "replace"]
_Shape = SupportsIndex | tuple[SupportsIndex, ...]
_View = slice | EllipsisType | None | tuple[slice | EllipsisType | None, ...]

@dataclass(frozen=True)
class Sequential:
    manager: Literal["dynamic", "fixed"] = "dynamic"
    window: float | None = None
    replicas: int = 0

@dataclass(frozen=True)
class Release:
    replicas: int = 0

@dataclass(frozen=True)
class Private:
    local: int | str | None = None
    copies: Literal[0, 2] = 0

@dataclass(frozen=True)
class Views:
    prefix: int = 32
    replicas: int = 0

_Policy = (
    Sequential | Release | Private | Views | Literal["sequential", "release", "private", "views"] | None
)

class Array(np.ndarray[tuple[Any, ...], _DType_co]):
    @property
    def name(self) -> str: ...
    @property
    def policy(self) -> Sequential | Release | Private | Views | None: ...
    @property
    def T(self) -> Array[_DType_co]: ...
    @overload  # type: ignore[override]
    def __getitem__(self, index: _View) -> Array[_DType_co]: ...
    @overload
    def __getitem__(self, index: Any) -> Any: ...
    def unlink(self) -> None: ...
    def advise(
        self, advice: Literal["normal", "sequential", "random", "willneed", "dontneed", "renew"]
    ) -> None: ...
    def publish(self) -> None: ...
    def purge(self) -> None: ...
    def capability(self, *, write: bool = False) -> int: ...
    def reduce(self, merge: _Merge) -> None: ...
    def accumulate(self, values: ArrayLike, merge: _Merge = "sum") -> None: ...
    def lock(self, number: int = 1) -> OwnLock: ...
    def barrier(self, parties: int, number: int = 0, timeout: float | None = None) -> None: ...
    def slice_of(self, rank: int, size: int) -> Array[_DType_co]: ...

@overload
def array(
    name: str | None,
    shape: _Shape,
    *,
    order: Literal["C", "F"] = "C",
    policy: _Policy = None,
    local: int | str | None = None,
    mode: int = 0o600,
) -> Array[np.dtype[np.float64]]: ...
@overload
def array(
    name: str | None,
    shape: _Shape,
    dtype: type[_Scalar] | np.dtype[_Scalar],
    *,
    order: Literal["C", "F"] = "C",
    policy: _Policy = None,
    local: int | str | None = None,
    mode: int = 0o600,
) -> Array[np.dtype[_Scalar]]: ...
@overload
def array(
    name: str | None,
    shape: _Shape,
    dtype: DTypeLike,
    *,
    order: Literal["C", "F"] = "C",
    policy: _Policy = None,
    local: int | str | None = None,
    mode: int = 0o600,
) -> Array: ...
@overload
def attach(
    name: str,
    *,
    dtype: type[_Scalar] | np.dtype[_Scalar],
    shape: _Shape | None = None,
    readonly: bool = False,
) -> Array[np.dtype[_Scalar]]: ...
@overload
def attach(
    name: str,
    *,
    dtype: DTypeLike | None = None,
    shape: _Shape | None = None,
    readonly: bool = False,
) -> Array: ...
def redeem(capability: int) -> Array: ...
