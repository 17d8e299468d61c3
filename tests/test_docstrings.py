"""Every public name is documented as scikit-learn's are: a summary, and numpydoc sections that match the signature."""

import dataclasses
import inspect
import re

import pytest

import agnosticfair


def sections(text):
    """The numpydoc sections of a docstring: title -> its lines, dedented; "" is what stands before the first."""
    lines, found, title = inspect.cleandoc(text or "").splitlines(), {"": []}, ""
    for line, after in zip(lines, [*lines[1:], ""], strict=False):
        if re.fullmatch(r"-{3,}", line):
            found[title] = []
        elif re.fullmatch(r"-{3,}", after):
            title = line
        else:
            found.setdefault(title, []).append(line)
    return found


def described(lines):
    """The names in a section's entries: ``a, b : kind`` is two."""
    entries = [line for line in lines if line and not line.startswith(" ")]
    return [name.strip(" *") for line in entries for name in line.split(" : ")[0].split(",")]


def wanted(thing):
    """The parameters of a call."""
    kinds = inspect.signature(thing).parameters
    return [name for name in kinds if name not in ("self", "cls") and not name.startswith("_")]


def documented():
    """Functions, classes and the public methods of classes that the package itself defines, by name."""
    for name in agnosticfair.__all__:
        thing = getattr(agnosticfair, name)
        if not callable(thing):
            continue
        yield pytest.param(thing, id=name)
        for key, own in vars(thing).items() if inspect.isclass(thing) else ():
            call = getattr(own, "__func__", own)
            if not key.startswith("_") and inspect.isfunction(call):
                yield pytest.param(call, id=f"{name}.{key}")


@pytest.mark.parametrize("thing", [*documented()])
def test_a_public_name_is_documented_as_it_is_called(thing):
    found = sections(thing.__doc__)
    summary = next(iter(found[""]), "")
    assert re.match(r"[A-Z`'\"*].*", summary), "begin with a summary"
    named = [n for title in ("Parameters", "Attributes") for n in described(found.get(title, ()))]
    missing = [name for name in wanted(thing) if name not in named]
    assert not missing, f"describe {missing} under Parameters"
    fields = (
        {f.name for f in dataclasses.fields(thing)} if dataclasses.is_dataclass(thing) else set()
    )
    unknown = {*described(found.get("Parameters", ()))} - {*wanted(thing)} - fields
    assert not unknown, f"{unknown} are no parameters"
    gives = inspect.signature(thing).return_annotation
    is_call = not inspect.isclass(thing) and (wanted(thing) or "." not in thing.__qualname__)
    if is_call and gives not in (None, "None", inspect.Signature.empty):
        assert "Returns" in found or "Yields" in found, "say what it returns"


FUNCTIONS = [
    name for name in agnosticfair.__all__ if inspect.isfunction(getattr(agnosticfair, name))
]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_public_function_has_an_example(name):
    assert ">>>" in (getattr(agnosticfair, name).__doc__ or "")
