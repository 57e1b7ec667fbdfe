import concurrent.futures
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ParamSpec, TypeVar

__all__ = ["Executor"]

_P = ParamSpec("_P")
_T = TypeVar("_T")

class Executor(concurrent.futures.Executor):
    def __init__(
        self,
        max_workers: int | None = None,
        *,
        initializer: Callable[..., object] | None = None,
        initargs: tuple[Any, ...] = (),
    ) -> None: ...
    def submit(
        self, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs
    ) -> concurrent.futures.Future[_T]: ...
    def map(
        self,
        fn: Callable[..., _T],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
    ) -> Iterator[_T]: ...
    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None: ...
