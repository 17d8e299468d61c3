"""Entrants of the benchmark, one small file each: add a file, and its entrant here; or name your own file."""

from agnosticfair.experiments.entrants.boosted import BOOSTED
from agnosticfair.experiments.entrants.entrant import Coded, Decide, Entrant, Train
from agnosticfair.experiments.entrants.fairfed import FAIRFED
from agnosticfair.experiments.entrants.fairgbm import FAIRGBM
from agnosticfair.experiments.entrants.fairgrad import FAIRGRAD
from agnosticfair.experiments.entrants.fairlearn import EXPONENTIATED, THRESHOLD
from agnosticfair.experiments.entrants.fedfb import FEDFB
from agnosticfair.experiments.entrants.logofair import LOGOFAIR
from agnosticfair.experiments.entrants.ours import (
    ADDITIVE,
    AGNOSTICFAIR,
    FAIRFL,
    FL,
    LINEAR,
    NETWORK,
    RULE,
)
from agnosticfair.experiments.entrants.outside import digest, from_file, is_file
from agnosticfair.experiments.entrants.oxonfair import OXONFAIR

_OURS = (RULE, ADDITIVE, LINEAR, AGNOSTICFAIR, FAIRFL, FL, NETWORK)
_PEERS = (EXPONENTIATED, THRESHOLD, OXONFAIR, FAIRGRAD, FEDFB, FAIRFED, LOGOFAIR, FAIRGBM, BOOSTED)

ENTRANTS = {entrant.name: entrant for entrant in (*_OURS, *_PEERS)}

__all__ = ["ENTRANTS", "Coded", "Decide", "Entrant", "Train", "digest", "from_file", "is_file"]
