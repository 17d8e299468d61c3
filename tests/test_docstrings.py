"""Every public name is documented as it is called; the form of sections is ruff's."""

import inspect
import re

import agnosticfair


def documented():
    """Functions, classes and the public methods of classes that the package itself defines, by name."""
    for name in agnosticfair.__all__:
        thing = getattr(agnosticfair, name)
        if not callable(thing):
            continue
        yield name, thing
        for key, value in vars(thing).items() if inspect.isclass(thing) else ():
            call = getattr(value, "__func__", value)
            if not key.startswith("_") and inspect.isfunction(call):
                yield f"{name}.{key}", call


def test_every_public_parameter_is_described_and_every_function_has_an_example():
    for name, thing in documented():
        text = inspect.cleandoc(thing.__doc__)
        entries = " , ".join(re.findall(r"^(\*{0,2}\w+(?:, \w+)*)(?: : .*)?$", text, re.MULTILINE))
        parameters = {p for p in inspect.signature(thing).parameters if p not in ("self", "cls")}
        assert parameters <= {*re.findall(r"\w+", entries)}, name
        assert ">>>" in text or not inspect.isfunction(thing) or "." in name, name
