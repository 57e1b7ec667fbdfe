"""Functions and values on their way to other processes."""

import os
import pickle
import sys
from multiprocessing.reduction import ForkingPickler


def dumps(value):
    """The value, pickled; what other processes cannot import goes by value, if cloudpickle is there.

    That is what was typed interactively, and functions within functions. All else goes by name.
    """
    if not is_interactive():
        try:
            return bytes(ForkingPickler.dumps(value))
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            return _by_value(value, error)
    return _by_value(value, None)


def is_interactive():
    """Whether other processes cannot import what the main module defines."""
    main = sys.modules.get("__main__")
    if getattr(main, "__spec__", None) is not None:
        return False
    file = getattr(main, "__file__", None)
    return file is None or not os.path.exists(file)


def _by_value(value, error):
    try:
        import cloudpickle
    except ModuleNotFoundError:
        if error is None:
            return bytes(ForkingPickler.dumps(value))
        why = f"{error}. With cloudpickle (pip install 'pagemesh[cloudpickle]') it goes by value"
        raise pickle.PicklingError(why) from error
    return cloudpickle.dumps(value)
