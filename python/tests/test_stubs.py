"""The stubs name what there is: no more, no less, with the same arguments."""

import ast
import importlib
import inspect
from pathlib import Path

import pytest

import pagemesh

HOME = Path(pagemesh.__file__).parent
STUBS = sorted(HOME.glob("*.pyi"))


def test_there_are_stubs():
    assert (HOME / "py.typed").exists()
    assert len(STUBS) >= 7


@pytest.mark.parametrize("path", STUBS, ids=lambda path: path.stem)
def test_stubs_are_true(path):
    name = "pagemesh" if path.stem == "__init__" else f"pagemesh.{path.stem}"
    module = importlib.import_module(name)
    declared = {}
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            declared[node.name] = node
    public = getattr(module, "__all__", None) or [word for word in dir(module) if word[0] != "_"]
    missing = [word for word in public if word not in declared and f" {word}\n" not in path.read_text()]
    assert [word for word in missing if not word.isupper() and word != "__version__"] == []
    for word, node in declared.items():
        if word[0] == "_":
            continue
        there = getattr(module, word)
        assert inspect.isclass(there) == isinstance(node, ast.ClassDef)
        if isinstance(node, ast.FunctionDef):
            check(node, there)
            continue
        for method in node.body:
            if isinstance(method, ast.FunctionDef) and method.name[0] != "_":
                check(
                    method,
                    getattr(there, method.name),
                )


def check(node, function):
    if not callable(function) or any(
        getattr(mark, "id", "") == "overload" for mark in node.decorator_list
    ):
        return
    try:
        real = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return
    args = node.args
    rest = [arg.arg for arg in (args.vararg, args.kwarg) if arg is not None]
    named = [arg.arg for arg in args.posonlyargs + args.args + args.kwonlyargs]
    assert sorted(named + rest) == sorted(real), node.name


def test_everything_public_is_described():
    for word in pagemesh.__all__:
        there = getattr(pagemesh, word)
        if inspect.isclass(there) or inspect.isfunction(there):
            assert inspect.getdoc(there), word
