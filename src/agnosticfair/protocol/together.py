"""One answer for several clients, or for several subgroups of one: what a relay passes on."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import add
from typing import Any

from agnosticfair.data.summary import SummaryStatistics, merge
from agnosticfair.errors import FederationError
from agnosticfair.protocol.messages import Candidates, Reply, add_up


def together(answers: Mapping[str, Any]) -> Any:
    """One answer for all of these, which are of one kind.

    >>> together({"a": Reply(1, {}), "b": Reply(1, {})})
    Reply(round=1, sums={})
    """
    replies = [answers[key] for key in sorted(answers)]
    if all(isinstance(answer, Reply) for answer in replies):
        return add_up(replies)
    if all(isinstance(answer, SummaryStatistics) for answer in replies):
        return merge(answers)
    if all(isinstance(answer, Candidates) for answer in replies):
        return reduce(add, replies)
    kinds = sorted({type(answer).__name__ for answer in replies})
    raise FederationError(f"a relay cannot add up {', '.join(kinds)}: ask such clients directly")
