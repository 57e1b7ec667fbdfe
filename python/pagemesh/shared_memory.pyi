from multiprocessing import shared_memory as _standard

__all__ = ["SharedMemory", "ShareableList"]

class SharedMemory(_standard.SharedMemory):
    # None only after close(), which a program knows it has called.
    @property
    def buf(self) -> memoryview: ...
    def __init__(
        self, name: str | None = None, create: bool = False, size: int = 0, *, track: bool | None = None
    ) -> None: ...

class ShareableList(_standard.ShareableList[_standard._SLT]): ...
