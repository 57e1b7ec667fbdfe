"""Shared memory between ordinary processes on several hosts."""

from . import errors
from ._pagemesh import PAGE_SIZE
from ._pagemesh import VERSION as __version__

__all__ = ["PAGE_SIZE", "__version__", "errors"]
