from multiprocessing import managers as _standard

__all__ = ["SharedMemoryManager"]

class SharedMemoryManager(_standard.SharedMemoryManager): ...
