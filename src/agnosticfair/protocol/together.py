"""One answer for several clients, or for several parts of one: what a relay passes on."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import add
from typing import Any

from agnosticfair.data.census import Census, merge
from agnosticfair.errors import FederationError
from agnosticfair.protocol.messages import Candidates, Reply, add_up


def together(answers: Mapping[str, Any]) -> Any:
    """One answer for all of these, which are of one kind.

    >>> together({"a": Reply(1, {}), "b": Reply(1, {})})
    Reply(round=1, sums={})
    """
    found = [answers[key] for key in sorted(answers)]
    if all(isinstance(answer, Reply) for answer in found):
        return add_up(found)
    if all(isinstance(answer, Census) for answer in found):
        return merge(answers)
    if all(isinstance(answer, Candidates) for answer in found):
        return reduce(add, found)
    kinds = sorted({type(answer).__name__ for answer in found})
    raise FederationError(f"a relay cannot add up {', '.join(kinds)}: ask such clients directly")
