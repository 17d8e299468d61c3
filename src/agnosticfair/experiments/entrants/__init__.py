"""Entrants of the benchmark, one small file each: add a file, and its entrant here."""

from agnosticfair.experiments.entrants.boosted import BOOSTED
from agnosticfair.experiments.entrants.entrant import Decide, Entrant, Rows, Train
from agnosticfair.experiments.entrants.fairlearn import EXPONENTIATED, THRESHOLD
from agnosticfair.experiments.entrants.ours import AGNOSTICFAIR, FAIRFL, FL, NETWORK

_ALL = (AGNOSTICFAIR, FAIRFL, FL, NETWORK, EXPONENTIATED, THRESHOLD, BOOSTED)

ENTRANTS = {entrant.name: entrant for entrant in _ALL}

__all__ = ["ENTRANTS", "Decide", "Entrant", "Rows", "Train"]
