"""All views of a segment of policy ``views`` in one process, at addresses that differ in some bits."""

from enum import IntFlag

from ._mesh import mesh

__all__ = ["View", "Windows", "view_pointer"]


class View(IntFlag):
    """What a window shows; the bits can be combined.

    0 is the consistent copy of whole pages, which moves to this node at the first access. ``OLD`` is a
    copy for reading that may be old; ``SHORT`` has only the first bytes of each page; ``NEXT``, only
    together with ``OLD``, sends no request when a page is absent, and sleeps until the next copy passes.
    """

    CONSISTENT = 0
    SHORT = 1
    NEXT = 2
    OLD = 4


def view_pointer(address, stride, view):
    """The address of the same byte in another view: arithmetic, no call of the system."""
    return (address & ~(7 * stride)) | int(view) * stride


class Windows:
    """The windows of a segment: ``windows[view]`` is its memory, as that view shows it.

    With ``size`` the segment is made if it does not exist; ``short`` is the length of its short pages.
    ``write=False`` opens it to read only: then there are only views with ``View.OLD``.
    """

    def __init__(self, name, size=None, *, short=32, mode=0o600, write=True):
        self.name = name
        if size is None:
            self._segment = mesh().open(name, write=write)
        else:
            self._segment = mesh().create(
                name, size, mode=mode, exclusive=False, policy="views", prefix=short
            )
        self._windows = self._segment.map_views()
        self._memory = {}

    @property
    def size(self):
        """Bytes of the segment."""
        return self._segment.size

    @property
    def stride(self):
        """Bytes from one window to the next, a power of two: its multiples choose the view."""
        return self._windows.stride

    def address(self, view=View.CONSISTENT, offset=0):
        """The address of a byte in a view, for :mod:`ctypes` and the like."""
        return view_pointer(self._windows.base + offset, self.stride, view)

    def __getitem__(self, view):
        """The memory of a view; it can be stored to if the view is consistent."""
        view = View(view)
        if view not in self._memory:
            self._memory[view] = memoryview(self._windows.memory(int(view)))
        return self._memory[view]

    def purge(self, view=View.OLD, start=0, end=None):
        """PURGE: drops this node's copies of these bytes, of a view with ``View.OLD``.

        The next access fetches them, or sleeps until they pass. Of other views: :meth:`publish`.
        """
        self._windows.purge(int(view), start, self.size if end is None else end)

    def page_out(self, view=View.OLD, start=0, end=None):
        """These bytes are not needed here for a while: copies leave this node, and a consistent copy
        leaves memory.

        With ``View.SHORT`` the first bytes of each page leave, and whole pages stay on this node.
        """
        self._windows.page_out(int(view), start, self.size if end is None else end)

    def lock(self, view=View.CONSISTENT, start=0, end=None):
        """Locks the pages of these bytes into this node, for a ``with`` statement, one second at most.

        Fails if a consistent copy is on another node, and asks for it: lock again. With ``View.SHORT``
        the pages leave all views of whole pages, and are back at the next access.
        """
        return self._windows.lock(int(view), start, self.size if end is None else end)

    def publish(self, start=0, end=None, *, short=False):
        """Sends copies of the pages of these bytes, as one, to all nodes that use them."""
        self.purge(View.SHORT if short else View.CONSISTENT, start, end)
