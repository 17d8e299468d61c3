"""The coordinator's side of secure sums: it opens a session, and reads nothing but totals."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from agnosticfair.errors import FederationError
from agnosticfair.protocol.messages import Agreement, Broadcast, Invitation, Masked, Offer, Reply
from agnosticfair.protocol.requests import step_of
from agnosticfair.protocol.secure.keys import (
    Roster,
    check_offer,
    check_roster,
    check_signature,
    check_tag,
    digest,
    public_half,
    reply_key,
)
from agnosticfair.protocol.secure.masks import length, request_digest, shaped
from agnosticfair.protocol.secure.site import AGREE, KEYS

Send = Callable[..., Mapping[str, Any]]
"""From (step, request, check) to every site's answer, checked: ``Coordinator.send``."""


@dataclass(frozen=True)
class Opened:
    """A session that all of its sites have agreed on.  keys: what each site shares with the coordinator, to mark
    its replies; None where sites sign them."""

    session: str
    roster: Roster
    keys: Mapping[str, bytes] | None = field(default=None, repr=False)


def open_session(send: Send, roster: Roster, min_sites: int = 2) -> Opened:
    """Collect the sites' signed masking keys, and hand all of them to each."""
    check_roster(roster, min_sites)
    session, secret = secrets.token_hex(16), secrets.token_bytes(32)
    invitation = Invitation(session, dict(roster), public_half(secret))
    offers = send(KEYS, invitation, partial(_checked_offer, invitation=invitation))
    send(AGREE, Agreement(session, tuple(offers.values())), None)
    keys = {
        site: reply_key(secret, offer.public, session, f"site {site!r}")
        for site, offer in offers.items()
    }
    return Opened(session, roster, keys)


def _checked_offer(offer: object, site: str, invitation: Invitation) -> Offer:
    if not isinstance(offer, Offer) or offer.site != site:
        raise FederationError(f"site {site!r} sent no masking key of its own: check its version")
    check_offer(offer, invitation, invitation.sites)
    return offer


def total(send: Send, opened: Opened, broadcast: Broadcast[Any]) -> Reply:
    """The sum of all sites' replies. One site's reply is uniformly random numbers to the coordinator."""
    broadcast, step = replace(broadcast, session=opened.session), step_of(broadcast.request)
    shapes = broadcast.shapes
    request = request_digest(step, broadcast, digest(opened.roster))
    check = partial(
        _checked, broadcast=broadcast, request=request, opened=opened, size=length(shapes)
    )
    answers = send(step, broadcast, check)
    added = np.zeros(length(shapes), np.uint64)
    for site in opened.roster:
        added += answers[site].values
    return shaped(added, broadcast.round, broadcast.task, shapes)


def _checked(
    answer: object, site: str, broadcast: Broadcast, request: bytes, opened: Opened, size: int
) -> Masked:
    """The answer, if it is masked, of this round, length and site, and proved to be to this very request."""
    if not isinstance(answer, Masked):
        raise FederationError(
            f"site {site!r} answered with {type(answer).__name__}, not masked sums: it may not be set up for them"
        )
    if answer.round != broadcast.round or answer.site != site:
        raise FederationError(
            f"site {site!r} sent the answer of site {answer.site!r} to round {answer.round} instead of its own "
            f"to {broadcast.round}: a late or swapped reply is never added"
        )
    if answer.values.dtype != np.uint64 or answer.values.shape != (size,):
        raise FederationError(
            f"site {site!r} sent {answer.values.size} masked numbers; asked were {size}"
        )
    if opened.keys is None:
        check_signature(opened.roster, site, answer.proof, request, answer.values)
    else:
        check_tag(opened.keys[site], site, answer.proof, request, answer.values)
    return answer
