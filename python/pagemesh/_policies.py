"""What the memory of an array promises."""

from dataclasses import dataclass

from ._mesh import retrying


@dataclass(frozen=True)
class Sequential:
    """Every load sees the latest store, wherever it was made.

    ``manager`` is ``"dynamic"`` (who has a page is found along hints) or ``"fixed"`` (the node that
    made the segment knows). A page stays at least ``window`` seconds where it has come to;
    ``None`` chooses, 0 is not at all.
    """

    manager: str = "dynamic"
    window: float | None = None

    def _keywords(self):
        return {"policy": "sequential", "manager": self.manager, "window": self.window}


@dataclass(frozen=True)
class Release:
    """A load sees what was stored before it by the array's *own* locks and barriers.

    See :meth:`Array.lock` and :meth:`Array.barrier`. Several nodes may write one page at once; only
    what they changed travels, when somebody touches it who must see it.
    """

    def _keywords(self):
        return {"policy": "release"}


def policy_of(policy):
    """The policy that a program names, or gives."""
    if policy is None or policy == "sequential":
        return Sequential()
    if policy == "release":
        return Release()
    if not isinstance(policy, (Sequential, Release)):
        raise ValueError(
            f"unknown policy {policy!r}; there are pagemesh.Sequential(...) and pagemesh.Release()"
        )
    return policy


def known_policy(name):
    """The policy of a segment, as the cluster knows it."""
    known = retrying(lambda mesh: mesh.stat(name))["policy"]
    if known["policy"] == "sequential":
        return Sequential(known["manager"], known["window"])
    return Release()
