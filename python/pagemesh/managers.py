"""``multiprocessing.managers.SharedMemoryManager`` for segments of the cluster."""

from multiprocessing import managers as _standard

from .shared_memory import ShareableList, SharedMemory

__all__ = ["SharedMemoryManager"]


class _Tracker(_standard._SharedMemoryTracker):
    """Remembers the names that the manager has to remove."""

    def destroy_segment(self, segment_name):
        """Forgets a name, and removes it from the cluster."""
        self.segment_names.remove(segment_name)
        segment = SharedMemory(segment_name)
        segment.close()
        segment.unlink()


class _Server(_standard.SharedMemoryServer):
    """The manager's process."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        name = self.shared_memory_context.shared_memory_context_name
        self.shared_memory_context = _Tracker(name, [])


class SharedMemoryManager(_standard.SharedMemoryManager):
    """Removes, when it shuts down, all segments that were made through it.

    With an address of this host, processes on other hosts may connect to it.
    """

    _Server = _Server

    def SharedMemory(self, size):
        """A new segment of ``size`` bytes, which ends with the manager."""
        return self._tracked(lambda: SharedMemory(None, create=True, size=size))

    def ShareableList(self, sequence):
        """A new list with these items, which ends with the manager."""
        return self._tracked(lambda: ShareableList(sequence))

    def _tracked(self, make):
        with self._Client(self._address, authkey=self._authkey) as connection:
            made = make()
            segment = getattr(made, "shm", made)
            try:
                _standard.dispatch(connection, None, "track_segment", (segment.name,))
            except BaseException:
                segment.unlink()
                raise
        return made
