"""Every public name is documented as scikit-learn's are: a summary, and numpydoc sections that match the signature."""

import dataclasses
import inspect
import re

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
        yield name, thing
        for key, own in vars(thing).items() if inspect.isclass(thing) else ():
            call = getattr(own, "__func__", own)
            if not key.startswith("_") and inspect.isfunction(call):
                yield f"{name}.{key}", call


def test_every_public_name_is_documented_as_it_is_called():
    for name, thing in documented():
        assert not (problem := problem_of(thing)), f"{name}: {problem}"


def problem_of(thing):
    """What a docstring lacks, or ""."""
    found = sections(thing.__doc__)
    if not re.match(r"[A-Z`'\"*]", next(iter(found[""]), "")):
        return "begin with a summary"
    if inspect.isfunction(thing) and "." not in thing.__qualname__ and ">>>" not in thing.__doc__:
        return "give an example"
    named = [n for title in ("Parameters", "Attributes") for n in described(found.get(title, ()))]
    if missing := [name for name in wanted(thing) if name not in named]:
        return f"describe {missing} under Parameters"
    fields = dataclasses.fields(thing) if dataclasses.is_dataclass(thing) else ()
    known = {*wanted(thing), *(f.name for f in fields)}
    if unknown := {*described(found.get("Parameters", ()))} - known:
        return f"{unknown} are no parameters"
    gives = inspect.signature(thing).return_annotation
    is_call = not inspect.isclass(thing) and (wanted(thing) or "." not in thing.__qualname__)
    if (
        is_call
        and gives not in (None, "None", inspect.Signature.empty)
        and not {"Returns", "Yields"} & {*found}
    ):
        return "say what it returns"
    return ""
