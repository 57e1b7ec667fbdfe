"""What the memory of an array promises."""

from dataclasses import dataclass

from ._mesh import retrying


@dataclass(frozen=True)
class Sequential:
    """Every load sees the latest store, wherever it was made.

    ``manager`` is ``"dynamic"`` (who has a page is found along hints) or ``"fixed"`` (the node that
    made the segment knows). A page stays at least ``window`` seconds where it has come to;
    ``None`` chooses, 0 is not at all. With ``replicas=1`` one other node has what a node stored before
    any other one sees a part of it, and it outlives the node that stored it.
    """

    manager: str = "dynamic"
    window: float | None = None
    replicas: int = 0

    def _keywords(self):
        return {
            "policy": "sequential",
            "manager": self.manager,
            "window": self.window,
            "replicas": self.replicas,
        }


@dataclass(frozen=True)
class Release:
    """A load sees what was stored before it by the array's *own* locks and barriers.

    See :meth:`Array.lock` and :meth:`Array.barrier`. Several nodes may write one page at once; only
    what they changed travels, when somebody touches it who must see it. With ``replicas=1`` one other
    node has what a node stored before anybody hears of it, and it outlives the node that stored it.
    """

    replicas: int = 0

    def _keywords(self):
        return {"policy": "release", "replicas": self.replicas}


@dataclass(frozen=True)
class Private:
    """The memory of this process's node alone, which may be larger than the host's.

    Pages that do not fit into ``local`` (bytes, or for example ``"2G"``; ``None``: what the daemon
    allows) are in the idle memory of other nodes and on this host's disk. With ``copies=2`` they
    are in the memory of two other nodes, and on the disk only if there are no two.
    """

    local: int | None = None
    copies: int = 0

    def __post_init__(self):
        object.__setattr__(self, "local", bytes_of(self.local))
        if self.copies not in (0, 2):
            raise ValueError(f"pages are on the disk (copies=0) or on two nodes (2), not {self.copies}")

    def _keywords(self):
        return {"policy": "private-copies" if self.copies else "private", "local": self.local}


@dataclass(frozen=True)
class Views:
    """Copies for reading may be old; :meth:`Array.publish` and :meth:`Array.purge` make them newer.

    Through an array that can be stored to, a process sees and changes the one consistent copy of each
    page, which moves to its node. ``attach(name, readonly=True)`` sees copies, as they were when they
    were sent last. A short page has ``prefix`` bytes. With ``replicas=1`` one other node has what was
    published, and it outlives the node that published it.
    """

    prefix: int = 32
    replicas: int = 0

    def _keywords(self):
        return {"policy": "views", "prefix": self.prefix, "replicas": self.replicas}


_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def bytes_of(size):
    """A number of bytes, given as one or as for example ``"1.5G"``."""
    if size is None or isinstance(size, int):
        return size
    text = size.strip().removesuffix("iB")
    digits, unit = (text[:-1], text[-1]) if text[-1:].isalpha() else (text, "")
    try:
        return int(float(digits) * _UNITS[unit.upper()])
    except (KeyError, ValueError):
        raise ValueError(f"not a size: {size!r}; write for example '64M' or '4GiB'") from None


def policy_of(policy, local=None):
    """The policy that a program names, or gives."""
    if policy == "private":
        return Private(local)
    if local is not None:
        raise ValueError("local= is for policy='private'; name it in pagemesh.Private(...) otherwise")
    if policy is None or policy == "sequential":
        return Sequential()
    if policy == "release":
        return Release()
    if policy == "views":
        return Views()
    if not isinstance(policy, (Sequential, Release, Private, Views)):
        raise ValueError(
            f"unknown policy {policy!r}; there are pagemesh.Sequential(...), pagemesh.Release(...), "
            "pagemesh.Views(...) and pagemesh.Private(...)"
        )
    return policy


def known_policy(name):
    """The policy of a segment, as the cluster knows it."""
    known = retrying(lambda mesh: mesh.stat(name))["policy"]
    if known["policy"] == "sequential":
        return Sequential(known["manager"], known["window"], known["replicas"])
    if known["policy"] == "private":
        return Private(known["local"], known["copies"])
    if known["policy"] == "views":
        return Views(known["prefix"], known["replicas"])
    return Release(known["replicas"])
