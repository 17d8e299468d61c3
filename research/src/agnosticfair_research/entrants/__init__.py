"""Entrants of the benchmark, one small file each: add a file, and its entrant here; or name your own file."""

from agnosticfair_research.entrants.entrant import Coded, Decide, Entrant, Train
from agnosticfair_research.entrants.fairlearn import CONTROLLED, EXPONENTIATED
from agnosticfair_research.entrants.fedfb import FEDFB
from agnosticfair_research.entrants.ours import FAIRFL, FL, OVERALL, RULE
from agnosticfair_research.entrants.outside import digest, from_file, is_file
from agnosticfair_research.entrants.plugin import BOOSTED, FEDFACT, LINEARPOST, MOVED

_OURS = (RULE, OVERALL, FAIRFL, FL)
_OTHERS = (LINEARPOST, FEDFACT, EXPONENTIATED, CONTROLLED, FEDFB, BOOSTED, MOVED)

ENTRANTS = {entrant.name: entrant for entrant in (*_OURS, *_OTHERS)}

__all__ = ["ENTRANTS", "Coded", "Decide", "Entrant", "Train", "digest", "from_file", "is_file"]
