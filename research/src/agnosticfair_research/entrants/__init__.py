"""Entrants of the benchmark, one small file each: add a file, and its entrant here; or name your own file."""

from agnosticfair_research.entrants.boosted import BOOSTED
from agnosticfair_research.entrants.entrant import Coded, Decide, Entrant, Train
from agnosticfair_research.entrants.fairfed import FAIRFED
from agnosticfair_research.entrants.fairgbm import FAIRGBM
from agnosticfair_research.entrants.fairgrad import FAIRGRAD
from agnosticfair_research.entrants.fairlearn import EXPONENTIATED, THRESHOLD
from agnosticfair_research.entrants.fedfb import FEDFB
from agnosticfair_research.entrants.logofair import LOGOFAIR
from agnosticfair_research.entrants.ours import (
    ADDITIVE,
    AGNOSTICFAIR,
    FAIRFL,
    FL,
    LINEAR,
    NETWORK,
    RULE,
)
from agnosticfair_research.entrants.outside import digest, from_file, is_file
from agnosticfair_research.entrants.oxonfair import OXONFAIR

_OURS = (RULE, ADDITIVE, LINEAR, AGNOSTICFAIR, FAIRFL, FL, NETWORK)
_PEERS = (EXPONENTIATED, THRESHOLD, OXONFAIR, FAIRGRAD, FEDFB, FAIRFED, LOGOFAIR, FAIRGBM, BOOSTED)

ENTRANTS = {entrant.name: entrant for entrant in (*_OURS, *_PEERS)}

__all__ = ["ENTRANTS", "Coded", "Decide", "Entrant", "Train", "digest", "from_file", "is_file"]
