"""Sessions of secure sums: a site signs, masks and refuses; the coordinator opens one, and reads nothing but totals."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from agnosticfair.data.storage import write_atomically
from agnosticfair.errors import FederationError
from agnosticfair.protocol.messages import (
    Agreement,
    Broadcast,
    Invitation,
    Masked,
    Offer,
    Reply,
    digest,
    hexadecimal,
)
from agnosticfair.protocol.requests import step_of
from agnosticfair.protocol.secure.keys import (
    Identity,
    Roster,
    check_offer,
    check_roster,
    check_signature,
    check_tag,
    neighbours,
    offered,
    public_half,
    relay_of,
    relays,
    reply_key,
    signature,
    tag,
)
from agnosticfair.protocol.secure.masks import (
    MaskStream,
    flattened,
    length,
    mask,
    request_digest,
    shaped,
    streams,
)

KEYS = "keys"  # the step that begins a session: a signed masking key from each site
AGREE = "agree"  # the next one: all of these to each

SESSIONS = 8
"""Sessions whose masking keys a site keeps, those used last: with another's key gone, its masks can be made by nobody.
The search for a limit counts its models in one session while each fit has its own."""


@dataclass
class Session:
    """What a site keeps of a session.  invitation: who takes part, and who coordinates.  masking: its own secret
    key.  offers: of all sites, once they are agreed on.  request: by (task, step, round) a digest of the request,
    and the proof of what was answered.  streams: shared with each of the others.  data: a digest of the rows that
    it was begun with."""

    invitation: Invitation
    masking: bytes
    offers: dict[str, Offer] = field(default_factory=dict)
    request: dict[str, tuple[str, str]] = field(default_factory=dict)
    streams: list[MaskStream] = field(default_factory=list)
    data: str = ""

    @cached_property
    def reply_key(self) -> bytes:
        """What it shares with the coordinator."""
        about = self.invitation
        return reply_key(self.masking, about.coordinator, about.session, "the coordinator")


@dataclass
class SecureSite:
    """A site that answers in masked sums only.

    answer: from (step, payload) to the site's reply in the open.  pinned: every site's long-term public key,
    its own among them, from ``deploy init`` or the site's own list.  min_sites: the fewest that a total
    may have.  may_drop: whether it takes part in a problem stated anew for fewer sites than are pinned.
    open_steps: those that it answers in the open.  rows: a keyed hash of its rows, where ``answer`` shares noise with
    the other sites: it is then also given the session's sites with the hash of each, and no site may be dropped.
    path: a file, readable by the site alone, that keeps sessions over restarts; None to keep them in memory.  data: a
    digest of its rows: with others a session is over, whatever is asked in it, for a refusal that hung on the request
    would tell which sums have changed.  What is requested is judged by ``site.guard``, behind the masks.
    """

    identity: Identity
    pinned: Roster
    answer: Callable[..., Any]
    min_sites: int = 2
    may_drop: bool = False
    open_steps: frozenset[str] = frozenset()
    rows: str = ""
    path: Path | None = None
    data: str = ""
    sessions: dict[str, Session] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_roster(self.pinned, self.min_sites)
        if self.rows and self.may_drop:
            raise FederationError(
                f"site {self.identity.site!r} shares its noise among all sites and may drop none: a total without "
                "one of them, taken from a total with it, would have that one's share of the noise alone"
            )
        if self.rows and any(relay_of(site) != site for site in self.pinned):
            raise FederationError(
                f"site {self.identity.site!r} shares its noise among all sites, and of those below other relays it "
                "knows a few only: connect sites with a budget to the coordinator itself"
            )
        if self.pinned.get(self.identity.site) != self.identity.public:
            raise FederationError(
                f"site {self.identity.site!r} is not on the list with the key that it holds: add its public key"
            )
        if self.path is not None and self.path.exists():
            self.sessions = _read(self.path)

    def __call__(self, step: str, broadcast: Any) -> Any:
        """The answer to one step, masked; or a refusal."""
        if isinstance(broadcast, Invitation):
            return self._offer(broadcast)
        if isinstance(broadcast, Agreement):
            return self._agree(broadcast)
        if step in self.open_steps:
            return self.answer(step, broadcast)
        if not isinstance(broadcast, Broadcast) or not broadcast.session:
            raise FederationError(
                f"site {self.identity.site!r} answers step {step!r} in masked sums only: let the coordinator "
                "ask for secure sums"
            )
        return self._masked(step, broadcast)

    def _offer(self, invitation: Invitation) -> Offer:
        """A masking key for a new session, or the same one again for a session that it knows."""
        session = invitation.session
        known = self.sessions.get(session)
        if known is None:
            self._check_members(invitation.sites)
            known = Session(invitation, secrets.token_bytes(32), data=self.data)
            self.sessions[session] = known
            for old in list(self.sessions)[:-SESSIONS]:
                del self.sessions[old]
            self._save()
        elif known.invitation != invitation:
            raise FederationError(
                f"session {session[:8]} was begun with other sites or another coordinator: begin a new one"
            )
        return offered(self.identity, invitation, known.masking, self.rows)

    def _check_members(self, roster: Roster) -> None:
        """Raise unless the sites that are to take part are those that this site knows."""
        if roster == self.pinned:
            return
        for site, public in roster.items():
            if site not in self.pinned:
                raise FederationError(
                    f"site {site!r} is not on the list of site {self.identity.site!r}: add its public key there"
                )
            if self.pinned[site] != public:
                raise FederationError(
                    f"the key given for site {site!r} is not the one that site {self.identity.site!r} has pinned: "
                    "somebody may stand in between"
                )
        check_roster(roster, self.min_sites)
        away = sorted(set(self.pinned) - set(roster))
        if self.identity.site not in roster or (away and not self.may_drop):
            raise FederationError(
                f"site {self.identity.site!r} takes part with all of its list only, and {away[0]!r} is missing: "
                "wait for it, or allow the site to go on without some"
            )

    def _agree(self, agreement: Agreement) -> Reply:
        """Check and keep the masking keys of those it shares masks with; they cannot be changed afterwards."""
        known, session = self._session(agreement.session), agreement.session
        near = neighbours(known.invitation.sites, self.identity.site)
        signed = [offer for offer in agreement.offers if offer.site in near]
        offers = {offer.site: offer for offer in signed}
        if sorted(near) != sorted(offer.site for offer in signed):
            raise FederationError(
                "the masking keys are not those of the session's sites: begin a new one"
            )
        for offer in signed:
            check_offer(offer, known.invitation, self.pinned)
        if known.offers and known.offers != offers:
            raise FederationError(
                f"session {session[:8]} has masking keys already: begin a new one"
            )
        if not known.offers:
            known.offers = offers
            self._save()
        return Reply(0, {})

    def _session(self, session: str) -> Session:
        if session not in self.sessions:
            raise FederationError(
                f"site {self.identity.site!r} knows no session {session[:8]!r}: its keys are gone or were never "
                "made; begin a new one"
            )
        known = self.sessions[session] = self.sessions.pop(session)  # the last one used
        if known.data != self.data:
            raise FederationError(
                f"site {self.identity.site!r} has another file than when session {session[:8]!r} began: begin a new one"
            )
        return known

    def _masked(self, step: str, broadcast: Broadcast) -> Masked:
        known, site = self._session(broadcast.session), self.identity.site
        if not known.offers:
            raise FederationError(
                f"site {site!r} was asked {step!r} before masking keys were agreed on"
            )
        request = request_digest(step, broadcast, known.invitation.roster)
        place = f"{broadcast.task.id} {step} {broadcast.round}"
        self._check_first(known, place, request)
        rows_of = {name: offer.rows for name, offer in known.offers.items()}
        reply = self.answer(step, broadcast, *((rows_of,) if self.rows else ()))
        if not isinstance(reply, Reply):
            raise FederationError(
                f"step {step!r} sends {type(reply).__name__.lower()}, not sums, and cannot be masked: take a "
                "method without it"
            )
        values = flattened(reply, broadcast.task)
        if not known.streams:
            known.streams = streams(site, known.masking, broadcast.session, known.offers)
        values = values + mask(known.streams, request, len(values))
        proof = self._proof(known, request, values)
        self._remember(known, place, request, proof)
        return Masked(broadcast.round, site, values, proof)

    def _check_first(self, known: Session, place: str, request: bytes) -> None:
        """Refuse a second request for the same round at another point: two totals that differ in what one
        site was asked could be taken from each other."""
        if place in known.request and known.request[place][0] != request.hex():
            _, step, round = place.split()
            raise FederationError(
                f"site {self.identity.site!r} has answered {step!r} of round {round} for another request already: "
                "a round is asked once"
            )

    def _remember(self, known: Session, place: str, request: bytes, proof: str) -> None:
        """Write down what is answered, before it is sent; refuse a second answer to the same request: under the
        same masks the two would show by how much its sums have changed."""
        if place not in known.request:
            known.request[place] = (request.hex(), proof)
            self._save()
        elif known.request[place][1] != proof:
            raise FederationError(
                f"site {self.identity.site!r} would answer a request otherwise than it did before: its rows have "
                "changed; begin anew"
            )

    def _proof(self, known: Session, request: bytes, values: np.ndarray) -> str:
        """For the coordinator, or where there is none for all."""
        if known.invitation.coordinator:
            return tag(known.reply_key, request, values)
        return signature(self.identity, request, values)

    def _save(self) -> None:
        """Write the sessions to the file, if there is one: whole or not at all, and for the site alone."""
        if self.path is None:
            return
        content = {
            name: {
                "sites": dict(known.invitation.sites),
                "coordinator": known.invitation.coordinator,
                "masking": known.masking.hex(),
                "offers": {k: asdict(v) for k, v in known.offers.items()},
                "request": known.request,
                "data": known.data,
            }
            for name, known in self.sessions.items()
        }
        write_atomically({self.path: json.dumps(content).encode()}, 0o600)


def _read(path: Path) -> dict[str, Session]:
    """The sessions in a file, which the site wrote itself; a damaged one is refused."""
    try:
        content: Mapping[str, Any] = json.loads(path.read_text())
        return {
            name: Session(
                Invitation(name, dict(entry["sites"]), entry["coordinator"]),
                bytes.fromhex(hexadecimal(entry["masking"], 32)),
                {k: Offer(**v) for k, v in entry["offers"].items()},
                {k: (request, proof) for k, (request, proof) in entry["request"].items()},
                data=str(entry["data"]),
            )
            for name, entry in content.items()
        }
    except (ValueError, KeyError, TypeError, AttributeError):
        raise FederationError(
            f"the file of secure sessions {path.name!r} is damaged: delete it, and begin the fit again"
        ) from None


# The coordinator opens sessions, and reads nothing but totals.

Send = Callable[..., Mapping[str, Any]]
"""From (step, request, check) to every site's answer, checked: ``Coordinator.send``."""


@dataclass(frozen=True)
class Opened:
    """A session that all of its sites have agreed on.  keys: what each site shares with the coordinator, to mark
    its replies; None below relays, where sites sign them."""

    session: str
    roster: Roster
    keys: Mapping[str, bytes] | None = field(default=None, repr=False)


def open_session(send: Send, roster: Roster) -> Opened:
    """Collect the sites' signed masking keys, and hand all of them to each."""
    check_roster(roster, 2)
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
