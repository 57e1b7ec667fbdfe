from collections.abc import Sequence
from multiprocessing import managers as _standard

from .shared_memory import ShareableList, SharedMemory

__all__ = ["SharedMemoryManager"]

class SharedMemoryManager(_standard.SharedMemoryManager):
    def SharedMemory(self, size: int) -> SharedMemory: ...
    def ShareableList(self, sequence: Sequence[_standard._SLT]) -> ShareableList[_standard._SLT]: ...
