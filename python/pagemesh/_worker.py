"""A process that :func:`pagemesh.spawn` started."""

import sys

from .jobs import work

if __name__ == "__main__":
    sys.exit(work(sys.argv[1]))
