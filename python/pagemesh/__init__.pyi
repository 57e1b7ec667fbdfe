from typing import Any

from . import errors as errors
from ._pagemesh import PAGE_SIZE as PAGE_SIZE
from .arrays import Array as Array
from .arrays import Private as Private
from .arrays import Release as Release
from .arrays import Sequential as Sequential
from .arrays import Views as Views
from .arrays import array as array
from .arrays import attach as attach
from .arrays import redeem as redeem
from .boards import Board as Board
from .boards import State as State
from .dicts import Dict as Dict
from .executor import Executor as Executor
from .jobs import Workers as Workers
from .jobs import barrier as barrier
from .jobs import nodes as nodes
from .jobs import rank as rank
from .jobs import size as size
from .jobs import spawn as spawn
from .pipes import Group as Group
from .pipes import Message as Message
from .pipes import Pipe as Pipe
from .queues import Queue as Queue
from .sync import Barrier as Barrier
from .sync import BoundedSemaphore as BoundedSemaphore
from .sync import BrokenBarrierError as BrokenBarrierError
from .sync import Condition as Condition
from .sync import Event as Event
from .sync import Lock as Lock
from .sync import RLock as RLock
from .sync import Semaphore as Semaphore
from .windows import View as View
from .windows import Windows as Windows
from .windows import view_pointer as view_pointer

__version__: str

def unlink(name: str) -> None: ...
def segments(*, arrays: bool = False) -> list[dict[str, Any]]: ...
def counters() -> dict[str, int]: ...
