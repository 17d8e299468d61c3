"""The coordinator's side of secure sums: it opens a session, and reads nothing but totals."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from agnosticfair.errors import FederationError
from agnosticfair.protocol.messages import (
    Agreement,
    Broadcast,
    Invitation,
    Masked,
    Offer,
    Reply,
    digest,
)
from agnosticfair.protocol.requests import step_of
from agnosticfair.protocol.secure.keys import (
    Roster,
    check_offer,
    check_roster,
    check_signature,
    check_tag,
    public_half,
    relay_of,
    relays,
    reply_key,
)
from agnosticfair.protocol.secure.masks import length, request_digest, shaped
from agnosticfair.protocol.secure.site import AGREE, KEYS

Send = Callable[..., Mapping[str, Any]]
"""From (step, request, check) to every site's answer, checked: ``Coordinator.send``."""


@dataclass(frozen=True)
class Opened:
    """A session that all of its sites have agreed on.  keys: what each site shares with the coordinator, to mark
    its replies; None below relays, where sites sign them."""

    session: str
    roster: Roster
    keys: Mapping[str, bytes] | None = field(default=None, repr=False)


def open_session(send: Send, roster: Roster, min_sites: int = 2) -> Opened:
    """Collect the sites' signed masking keys, and hand all of them to each."""
    check_roster(roster, min_sites)
    session, secret = secrets.token_hex(16), secrets.token_bytes(32)
    relayed = any(relay_of(site) != site for site in roster)
    invitation = Invitation(session, dict(roster), "" if relayed else public_half(secret))
    answers = send(KEYS, invitation, partial(_checked_offers, invitation=invitation))
    offers = tuple(offer for several in answers.values() for offer in several)
    send(AGREE, Agreement(session, offers), None)
    if relayed:
        return Opened(session, roster)
    keys = {
        offer.site: reply_key(secret, offer.public, session, f"site {offer.site!r}")
        for offer in offers
    }
    return Opened(session, roster, keys)


def _checked_offers(answer: object, key: str, invitation: Invitation) -> tuple[Offer, ...]:
    """The masking key of a site, or those of a relay's sites."""
    offers = answer.offers if isinstance(answer, Agreement) else (answer,)
    signed = tuple(offer for offer in offers if isinstance(offer, Offer))
    if sorted(offer.site for offer in signed) != relays(invitation.sites)[key]:
        raise FederationError(f"site {key!r} sent no masking key of its own: check its version")
    for offer in signed:
        check_offer(offer, invitation, invitation.sites)
    return signed


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
    for answer in answers.values():
        added += answer.values
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
    if opened.keys is None and site not in opened.roster:
        pass  # of a relay, which is known by its connection
    elif opened.keys is None:
        check_signature(opened.roster, site, answer.proof, request, answer.values)
    else:
        check_tag(opened.keys[site], site, answer.proof, request, answer.values)
    return answer
