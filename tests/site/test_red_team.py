"""The threat model, as attacks. Each goes the real way: bytes of a request to a site that ``deploy init`` made.

Who attacks: **a coordinator that lies** about the task, the folds, the subgroups, the number of sites. It may send any
bytes to any site, and see all that comes back. It must not learn a site's own sums, nor anything by what is refused:
a refusal is one sentence, whatever the cause. What totals of all sites show is not hidden by masks (docs/privacy.md).
"""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from helpers import dealt, small_table
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

pytest.importorskip("cryptography", reason="needs agnosticfair[secure]")

from town import EDGES, ROWS, SITES, Town, noisy, refusal, rows_of, written

from agnosticfair.auditing.audit import audit_clients
from agnosticfair.client.client import Client
from agnosticfair.client.steps import answer
from agnosticfair.data.axes import Binning, declared
from agnosticfair.data.rows import Fold
from agnosticfair.data.schema import applied, schema_of
from agnosticfair.data.summary import SummaryStatistics, summary_statistics
from agnosticfair.data.table import Column
from agnosticfair.deploy.secrets import LIST, list_text, read_key_list
from agnosticfair.deploy.site import hello
from agnosticfair.errors import DataError, FederationError
from agnosticfair.federation import fit
from agnosticfair.learners.decisions import Decision, Kernels
from agnosticfair.learners.estimates import Estimates, Head, heads, predict
from agnosticfair.learners.trees import packed
from agnosticfair.mathematics.basis import by_client, constant, gaussian
from agnosticfair.mathematics.fairness import Surrogate
from agnosticfair.mathematics.scores import Directions, Points
from agnosticfair.mathematics.trees import empty
from agnosticfair.methods import method
from agnosticfair.privacy.ledger import Ledger, PrivateSite
from agnosticfair.privacy.requests import (
    PrivateCounts,
    PrivateDecisions,
    PrivateGradients,
    PrivateHeads,
    PrivateMoments,
    PrivateRates,
    deviations,
)
from agnosticfair.protocol.engines.seam import Failure
from agnosticfair.protocol.messages import Broadcast, Reply, bits
from agnosticfair.protocol.requests import (
    UNCOUNTED,
    Calibration,
    Centres,
    Clusters,
    Counts,
    Decisions,
    FineCounts,
    Histograms,
    Learn,
    Moments,
    Outline,
    ProgramSums,
    SubgroupCounts,
    SubgroupDecisions,
    SubgroupMasses,
    SubgroupSet,
    Sums,
    Trials,
)
from agnosticfair.protocol.secure.keys import KEEPER, listed, new_identity
from agnosticfair.server import boosted
from agnosticfair.server import plan as server
from agnosticfair.site import checks
from agnosticfair.site.guard import Quiet, guarded
from agnosticfair.site.policy import SitePolicy


def sums_at(task, w=None):
    D, G = task.encoding.width + 1, task.strata
    M, F = (
        len(task.clients) if b.kind == "by_client" else 1 for b in (task.basis, task.fair_basis)
    )
    w = np.zeros(D) if w is None else w
    return Sums(Surrogate(), 0.5, w, np.ones(M), np.zeros((G, F + 1)))


def axes(*found, subgroups=()):
    rows = np.array(subgroups, float) if len(subgroups) else np.zeros((0, 3, 2))
    return SubgroupSet(tuple(found), rows)


@pytest.fixture
def town(tmp_path):
    return Town(tmp_path / "town")


@pytest.fixture
def without(tmp_path):
    """Masks, and no schema."""
    return Town(tmp_path / "without", schema=False)


def test_the_honest_coordinator_is_answered(town, without):
    for place in (town, without):
        total = place.total(sums_at(task := place.task()), task)
        assert total["L"] > 0 if "L" in total else total


# -- 1: rows by folds ---------------------------------------------------------------------------------------------


def test_an_outline_of_a_fold_of_one_row_is_that_row(without):
    """Unmasked smallest and largest values of a fold: with many folds, of one row."""
    read = []
    for number in range(40):
        fold = Fold(number, 4000, 1)
        found = without.one(
            "north", "outline", Broadcast(0, replace(UNCOUNTED, fold=fold), Outline())
        )
        if (
            isinstance(found, SummaryStatistics)
            and found.numeric["age"][0] == found.numeric["age"][1]
        ):
            read.append(found.numeric)
    assert read == []
    half = Broadcast(0, replace(UNCOUNTED, fold=Fold(0, 2, 0)), Outline())
    assert without.one("north", "outline", half) == Failure(refusal(), True)


@pytest.mark.parametrize("fold", [Fold(0, 3), Fold(7, 500), Fold(0, 2, 99)])
def test_sums_of_a_fold_that_is_not_agreed_on(town, fold):
    task = town.task(fold=fold)
    assert town.said("sums", Broadcast(1, task, sums_at(task))) == refusal()
    agreed = Broadcast(0, replace(UNCOUNTED, fold=fold), Counts(town.schema.outline()))
    assert town.said("counts", agreed) == refusal()


def test_the_agreed_folds_are_answered_and_their_groups_have_enough_rows(tmp_path):
    town = Town(tmp_path / "town")
    town.coordinator.fold = Fold(1, 2, 0)
    assert town.task().n < len(ROWS)
    few = Town(tmp_path / "few", own={"min-rows": 25})
    few.coordinator.fold = Fold(1, 2, 0)
    few.config["north"]["min-rows"] = 25
    with pytest.raises(FederationError, match="does not answer this request"):
        few.task()


def test_the_folds_by_which_learners_judge_have_enough_rows_of_every_group(tmp_path, caplog):
    """A model of one fold's complement at a steep point, and the loss of the fold itself: sums over its rows alone.
    Groups have some 300 rows here, 60 in a fifth, and 30 in a fifth of a half."""
    rows = rows_of(dealt(small_table(1200, 5), 2).values())
    town = Town(tmp_path / "town", rows, min_rows=40)
    few = Town(tmp_path / "few", rows, min_rows=100)
    w = np.zeros((6, len(HEADS), WIDE))
    binned = {"encoding": replace(town.task().encoding, bins=BINNED.bins)}
    estimated = {**binned, "estimates": linear_estimates(folds=5)}
    for number, (request, changes) in enumerate(
        (
            (Learn(HEADS, 5, 0, False, w), binned),
            (level_of(5, min_rows=100), binned),
            (Calibration(), estimated),
            (program_at(), estimated),
        )
    ):
        task = town.task(**changes)
        assert town.total(request, task), request.step
        assert few.said(request.step, Broadcast(1, task, request)) == refusal()
        half = Town(tmp_path / f"half{number}", rows, min_rows=40)
        halved = Broadcast(1, replace(task, fold=Fold(0, 2, 0)), request)
        assert half.said(request.step, halved) == refusal()
    assert "in one of the folds" in caplog.text
    assert few.total(Learn(HEADS, 0, 0, False, w[:1]), few.task(**binned))


def test_too_small_a_fold_is_seen_before_its_rows_are_summed():
    looked = []

    def held(step, one_request):
        looked.append(step)
        return answer(Client("north", ROWS), step, one_request)

    site = guarded(SitePolicy("north", SITES, masks=True, schema=SCHEMA, min_rows=40), held)
    request = Learn(HEADS, 5, 0, False, np.zeros((6, len(HEADS), WIDE)))
    assert asked_of(site, request, ruled_task()) == refusal()
    assert {*looked} == {"statistics"}


# -- 2: refusals that answer --------------------------------------------------------------------------------------


def hostile(town):
    """Requests of which each was answered by a refusal of its own, or by a sum."""
    task = town.task()
    encoding, (feature,) = task.encoding, task.sensitive_features
    (name, low, _), *more = encoding.numeric
    categories = ((encoding.categorical[0][0], encoding.categorical[0][1][:-1]),)
    yield (
        "narrower",
        replace(task, encoding=replace(encoding, numeric=((name, low, low + 1e-6), *more))),
    )
    yield "category", replace(task, encoding=replace(encoding, categorical=categories))
    yield "group", replace(task, sensitive_features=((feature[0], feature[1][:1]),))
    yield "twice", replace(task, sensitive_features=(feature, feature))
    yield "column", replace(task, encoding=replace(encoding, numeric=tuple(more)))
    yield "label", replace(task, positive="perhaps")
    yield "alone", replace(task, clients=("north",))
    yield "stranger", replace(task, clients=("north", "south", "west"))
    yield "rows", replace(task, n=-1)
    yield (
        "narrow kernels",
        replace(task, basis=gaussian(1, 1e-3, "ranges"), centres=np.zeros((1, encoding.width))),
    )
    yield "folds", replace(task, fold=Fold(0, 400))


def test_without_a_schema_a_number_cannot_be_asked_for_as_a_category(town):
    encoding = town.task().encoding
    (name, *_), *more = encoding.numeric
    swapped = (*encoding.categorical, (name, ("0", "1")))
    changed = replace(encoding, numeric=tuple(more), categorical=swapped)
    with pytest.raises(ValueError, match="its columns are others"):
        checks._around(changed, encoding, {})


def test_whatever_is_refused_the_sentence_is_one(town):
    said = {
        why: town.said("sums", Broadcast(1, task, sums_at(task))) for why, task in hostile(town)
    }
    task = town.task()
    said["shape"] = town.said("sums", Broadcast(1, task, sums_at(task, np.zeros(3))))
    said["statistics"] = town.said("statistics", Broadcast(1, task, Moments()))
    assert {*said.values()} == {refusal()}


def test_a_sum_too_large_for_its_grid_is_not_told(town):
    """'a sum of 153 could pass 2^63' told the sum; and whether there was a refusal told how large it is."""
    task = town.task()
    for n in (1, 240, 2**30):
        request = Broadcast(
            n, replace(task, n=n), sums_at(task, np.full(task.encoding.width + 1, 1e300))
        )
        town.coordinator.total(request)


def test_a_file_that_does_not_fit_the_schema_is_named_at_the_site_only(tmp_path, caplog):
    town = Town(tmp_path / "town")
    odd = replace(ROWS, categorical={"job": Column.of(["a", "b", "secret job"] * 80)})
    written(tmp_path / "town" / "north.csv", odd)
    request = Broadcast(0, UNCOUNTED, Counts(town.schema.outline()))
    with pytest.raises(FederationError, match="north") as error:
        town.coordinator.total(request)
    assert "secret" not in str(error.value)
    assert "job" not in str(error.value)
    assert refusal() in str(error.value)
    assert "column 'job'" in caplog.text


# -- 3: one site's sums within a total ----------------------------------------------------------------------------


def test_a_block_of_a_site_s_own_in_the_total_is_its_sums(town):
    """Loss by client, as afl asks for it: of two sites each had a block of the masked total for itself."""
    task = town.task()
    for request in (replace(task, basis=by_client()), replace(task, fair_basis=by_client())):
        assert town.said("sums", Broadcast(1, request, sums_at(request))) == refusal()
    split = replace(gaussian(2, 1.0, "ranges"), split=True)
    request = replace(task, fair_basis=split, centres=np.zeros((2, task.encoding.width)))
    assert town.said("moments", Broadcast(1, request, Moments())) == refusal()


def test_subgroups_named_by_the_site_are_its_counts(town):
    request = town.task(subgroups=axes(("site", SITES, ())))
    assert town.said("subgroup_counts", Broadcast(1, request, SubgroupCounts())) == refusal()


def test_a_site_that_consents_has_a_block_of_its_own(tmp_path):
    town = Town(tmp_path / "town", own={"shares-site-totals": True})
    task = town.task(basis=by_client())
    assert town.total(sums_at(task), task)["psi_L"].shape == (2,)


# -- 3: narrow bins, deep subgroups, clusters ---------------------------------------------------------------------


def one_person(town, column="age"):
    values = np.sort(np.concatenate([t.numeric[column] for t in town.tables.values()]))
    middle = len(values) // 2
    return values[middle] - 1e-9, values[middle] + 1e-9


def test_a_narrow_bin_of_one_person_shows_all_of_that_person(town, without):
    """Bins around one person's age, and counts of all pairs of values: job, group and label of that person."""
    for place in (town, without):
        task, edges = place.task(), one_person(place)
        names = ("under", "victim", "over")
        job = ("job", task.encoding.categorical[0][1], ())
        request = replace(task, subgroups=axes(("age", names, edges), job))
        with pytest.raises(FederationError, match="does not answer this request"):
            place.total(SubgroupCounts(), request)
        binned = replace(task, encoding=replace(task.encoding, bins=(("age", edges),)))
        with pytest.raises(FederationError, match="does not answer this request"):
            place.total(sums_at(binned), binned)


def test_two_cuts_that_differ_by_one_person_are_a_narrow_bin(without):
    """Each cut has enough rows on either side; the difference of the two totals is one person."""
    low, high = (np.median(without.tables["north"].numeric["age"]) + shift for shift in (0.0, 1e-3))
    first, second = (
        Broadcast(
            number,
            without.task(subgroups=axes(("age", ("under", "over"), (edge,)))),
            SubgroupCounts(),
        )
        for number, edge in ((1, low), (2, high + 0.05))
    )
    session = without.coordinator.session.session
    assert not isinstance(
        without.one("north", "subgroup_counts", replace(first, session=session)), Failure
    )
    assert without.said("subgroup_counts", second) == refusal()
    # and once refused, no other cut of this column is answered: refusals would find the person by halving
    third = replace(
        second,
        round=3,
        task=replace(second.task, subgroups=axes(("age", ("under", "over"), (high + 9,)))),
    )
    assert without.said("subgroup_counts", third) == refusal()


def test_a_histogram_of_a_range_that_is_not_agreed_on(town, without):
    """Narrow ones show one person; of wider ones each has other cells, and what two differ by is a narrow cell."""
    low, high = one_person(town)
    task = without.task()
    (_, minimum, maximum), *_ = task.encoding.numeric
    agreed = Histograms(("age",), np.array([minimum]), np.array([maximum]))
    assert without.total(agreed, task)["counts"].sum() == len(ROWS)
    for place in (town, without):
        for a, b in ((low, high), (minimum - 1.0, maximum), (minimum, maximum + 1e-3)):
            request = Histograms(("age",), np.array([a]), np.array([b]))
            assert place.said("histograms", Broadcast(2, place.task(), request)) == refusal()


def test_a_subgroup_of_many_values_is_one_person(town):
    task = town.task()
    bins = (("age", ("a", "b", "c"), EDGES["age"]), ("hours", ("a", "b"), EDGES["hours"]))
    known = (*bins, ("job", task.encoding.categorical[0][1], ()), ("sex", ("g0", "g1"), ()))
    deep = [[(0, 0), (1, 0), (2, 0), (3, 0)]]
    again = [[(0, 0), (-1, -1), (-1, -1)]] * 2
    astray = [[(0, 7), (-1, -1), (-1, -1)]]
    for subgroups in (deep, again, astray):
        request = replace(task, subgroups=axes(*known, subgroups=subgroups))
        assert town.said("subgroup_counts", Broadcast(1, request, SubgroupCounts())) == refusal()


def test_a_cluster_of_one_row_is_that_row(town):
    """The sum of the rows nearest to a centre that the coordinator chose: of one row, that row."""
    task = town.task()
    centres = np.vstack([np.full(task.encoding.width, 1e3), np.zeros(task.encoding.width)])
    assert town.said("clusters", Broadcast(1, task, Clusters(centres))) == refusal()


# -- 8: what is told in the open ----------------------------------------------------------------------------------


def test_a_column_of_names_is_not_told(tmp_path):
    """The outline had every distinct value of every column, verbatim."""
    named = [
        replace(
            t,
            categorical={
                **t.categorical,
                "name": Column.of([f"Ms {k} {i // 3}" for i in range(len(t))]),
            },
        )
        for k, t in dealt(ROWS, 2).items()
    ]
    town = Town(tmp_path / "town", rows_of(named), schema=False)
    found = town.one("north", "outline", None)
    assert found.categorical["name"] == ("other",)
    assert found.categorical["job"] == ("a", "b", "c")
    fewer = Town(tmp_path / "fewer", rows_of(named), schema=False, own={"columns": "job,hours"})
    found = fewer.one("north", "outline", None)
    assert ({*found.categorical}, {*found.numeric}) == ({"job"}, {"hours"})


def test_a_label_of_few_rows_is_not_told(tmp_path, caplog):
    """The outline named every label, also one that a single person has."""
    labels = ROWS.target.values().astype(object)
    labels[:3] = "dismissed for theft"
    rows = dealt(replace(ROWS, target=Column.of(labels)), 2).values()
    town = Town(tmp_path / "town", rows_of(rows), schema=False)
    assert town.one("north", "outline", None) == Failure(refusal(), True)
    assert "a label with fewer than 10 rows" in caplog.text


@pytest.mark.parametrize("secure", [True, False])
def test_rows_are_shown_by_consent_only(tmp_path, secure):
    """Without masks 'centres' gave all encoded rows, whatever shows-rows said."""
    town = Town(tmp_path / "town", secure=secure)
    task = town.task()
    assert (
        "does not answer" in town.said("centres", send := Broadcast(1, task, Centres(0, 1.0)))
        or not secure
    )
    assert isinstance(town.one("north", "centres", send), Failure)
    town.config["north"]["shows-rows"] = True
    assert len(town.one("north", "centres", send).rows) == len(town.tables["north"])


def test_the_first_list_of_keys_is_signed_too(town):
    """Whoever could write the first list put a site of his own in another's place."""
    path = town.folder / "keys" / LIST
    key_list = read_key_list(path)
    forged = listed(
        new_identity(KEEPER), 1, {**key_list.sites, "south": new_identity("south").public}
    )
    path.write_text(list_text(forged))
    with pytest.raises(FederationError, match="not signed by the keeper"):
        hello(town.config["north"])
    with pytest.raises(FederationError, match="not signed by the keeper"):
        town.task()


def test_a_step_without_a_check_is_refused(town, monkeypatch):
    """A new request is unknown to the site's judgement until somebody has written its check."""
    from agnosticfair.site import checks

    task = town.task()
    assert town.one(
        "north", "sums", Broadcast(1, task, sums_at(task), town.coordinator.session.session)
    )
    monkeypatch.delitem(checks.CHECKS, "sums")
    assert town.said("sums", Broadcast(2, task, sums_at(task))) == refusal()


def test_a_field_of_the_task_without_a_check_is_refused(town, monkeypatch):
    from agnosticfair.site import checks

    task = town.task(fair_basis=constant())
    monkeypatch.delitem(checks.TASK, "fair_basis")
    assert town.said("sums", Broadcast(2, task, sums_at(task))) == refusal()


# -- whatever is asked: what comes back does not hang on one row ----------------------------------------------------

SCHEMA = replace(schema_of(summary_statistics(ROWS, "all"), "y"), bins=EDGES)
PLAN = server.plan(method("fairfl"), summary_statistics(ROWS, "all"), SITES, positive="yes")
JOB = ("job", ("a", "b", "c"), ())
AGE = ("age", ("low", "middle", "high"), EDGES["age"])

numbers = st.sampled_from([0.0, 1.0, -3.0, 1e-9, 1e9, 1e300, -1e300])
folds = st.sampled_from([None, Fold(0, 2), Fold(1, 5), Fold(0, 2, 1), Fold(0, 240)])
edges = st.lists(st.sampled_from([-9.0, -0.5, 0.0, 1e-9, 0.5, 0.51]), max_size=3).map(tuple)
names = st.sampled_from(["age", "hours", "job", "sex", "site", "nothing"])
texts = st.lists(st.sampled_from(["a", "b", "c", "g0", "north", "?"]), max_size=4).map(tuple)
named = st.builds(
    lambda found, subgroups: axes(*found, subgroups=subgroups),
    st.lists(st.one_of(st.sampled_from([JOB, AGE]), st.tuples(names, texts, edges)), max_size=3),
    st.lists(
        st.lists(st.tuples(st.integers(-1, 3), st.integers(-1, 4)), min_size=3, max_size=3),
        max_size=2,
    ),
)
bases = st.sampled_from([constant(), by_client(), gaussian(1, 0.01, "ranges"), gaussian(1)])
groups = st.sampled_from(
    [(("sex", ("g0", "g1")),), (("sex", ("g0",)),), (("job", ("a", "b")),), ()]
)
clients = st.sampled_from([SITES, ("north",), (), ("north", "south", "west")])
HEADS = heads([("sex", tuple(SCHEMA.sensitive_features["sex"]))])
SHORT, LONG = (np.arange(2.0 * D).reshape(1, 2, D) - D for D in (4, PLAN.task.encoding.width + 1))
estimates = st.builds(
    Estimates,
    kind=st.sampled_from(["additive", "linear", "trees", "given"]),
    heads=st.sampled_from([HEADS, HEADS, HEADS[::-1], HEADS[:1]]),
    folds=st.sampled_from([0, 0, 2, 200]),
    seed=st.sampled_from([0, 0, 7]),
    arrays=st.sampled_from([{}, {"w": LONG}, {"w": LONG}, {"w": LONG.repeat(3, 0)}, {"w": SHORT}]),
    columns=st.sampled_from([(), (), ("", ""), ("age", "age"), ("hours", "")]),
    aware=st.booleans(),
)


def rule(K, named=None):
    return Decision((1.0, 1.0), np.zeros((K, 2)), subgroups=named)


tasks = st.fixed_dictionaries(
    {},
    optional={
        "fold": folds,
        "subgroups": named,
        "basis": bases,
        "fair_basis": bases,
        "sensitive_features": groups,
        "clients": clients,
        "positive": st.sampled_from(["yes", "no", "?"]),
        "by_label": st.booleans(),
        "n": st.sampled_from([0, 1, 240, 2**30, 2**60, -5]),
        "centres": st.just(np.zeros((1, 5))),
        "estimates": estimates,
        "rule": st.sampled_from([None, rule(1), rule(2)]),
    },
)


def _of_the_rule(draw, w, number):
    """Requests of learners and of the program, with hostile folds, seeds, bins and numbers."""
    folds, seed = draw(st.sampled_from([0, 2, 5, 200])), draw(st.sampled_from([0, 0, 7]))
    learn = Learn(HEADS, folds, seed, True, np.tile(w, (folds + 1, len(HEADS), 1)))
    points = Points(np.full((1, 1, 2), number[0]), number, np.abs(number))
    return learn, FineCounts(np.array([number])), ProgramSums((1.0, 1.0), points), Calibration()


def rates_at(**changes):
    """A request about the rates of a rule that decides by the label's estimate alone."""
    usual = {"error_costs": (1.0, 1.0), "eps": 0.1, "shift": 0.0, "A": np.zeros((1, 2))}
    return noisy(PrivateRates, **{**usual, "directions": np.zeros((0, 5)), **changes})


def _of_the_private_rule(draw, w, number):
    """Requests of heads and rates, with hostile coefficients and directions, of places and strata that are none."""
    places = draw(st.sampled_from([1, 1, 2, 3]))
    some = st.tuples(
        *(st.integers(-1, 2),) * 3, *(st.sampled_from([0.0, 0.5, 1.0, 1.0, -1.0, 3.0]),) * 2
    )
    directions = np.array(draw(st.lists(some, max_size=4)), float).reshape(-1, 5)
    of = {"A": np.full((places, 2), number[0]), "directions": directions, "shift": draw(numbers)}
    eps = draw(st.sampled_from([0.0, 0.1, 1e-300, 1.0, -1.0]))
    own = draw(st.sampled_from([HEADS, HEADS, HEADS[:1], HEADS * 2]))
    heads_of = noisy(PrivateHeads, heads=own, w=np.tile(w, (len(own), 1)))
    return heads_of, rates_at(eps=eps, **of), noisy(PrivateDecisions, w=np.zeros(0))


@st.composite
def requests(draw, private=False):
    """A step and a broadcast whose fields are of the right types, and hostile."""
    task = replace(PLAN.task, **draw(tasks))
    w = np.full(draw(st.sampled_from([6, 6, 6, 5])), draw(numbers))
    C = np.full((draw(st.sampled_from([2, 2, 4])), 2), draw(numbers))
    low, high = np.array([draw(numbers)]), np.array([draw(numbers)])
    kinds = [
        noisy(PrivateCounts, z=abs(draw(numbers))),
        noisy(PrivateMoments),
        noisy(PrivateGradients, temperature=draw(numbers), w=w),
        noisy(PrivateDecisions, w=w),
        *_of_the_private_rule(draw, w, low),
    ]
    if not private:
        kinds += [
            Sums(Surrogate("sigmoid", 1e-3), 0.5, w, np.ones(1), C),
            *(Trials(np.stack([w, -w])), SubgroupCounts(), SubgroupDecisions(w), Decisions(w)),
            *(Histograms((draw(names),), low, high), Counts(SCHEMA.outline()), Outline()),
            *(Clusters(np.zeros((2, 5))), Centres(0, 1.0)),
            *_of_the_rule(draw, w, low),
        ]
    request = draw(st.sampled_from(kinds))
    step = draw(st.sampled_from([request.step] * 9 + ["statistics"]))
    return step, Broadcast(1, task, request)


def verdict(site, step, broadcast):
    """What the coordinator can see of an answer under masks: whether there is one, and how long it is."""
    try:
        found = site(step, broadcast)
    except FederationError as error:
        return str(error)
    return {name: np.shape(value) for name, value in found.sums.items()}


def neighbours(row, **policy):
    """The site behind its guard, with all rows and without one of them."""
    for rows in (ROWS, ROWS.take(np.arange(len(ROWS)) != row)):
        held = partial(answer, Client("north", applied(SCHEMA, rows, "north")))
        site_policy = SitePolicy("north", SITES, masks=True, schema=SCHEMA, **policy)
        if site_policy.epsilon:
            pytest.importorskip("opendp", reason="needs agnosticfair[dp]")
            held = PrivateSite("north", Quiet("north", held), Ledger(1e6, 1e-5), rows=str(row))
        yield guarded(site_policy, held)


# -- estimates, trees and rules -------------------------------------------------------------------------------------

BINNED = replace(PLAN.task.encoding, bins=tuple(EDGES.items()))
WIDE = BINNED.width + 1
DECLARED = declared(BINNED)


def linear_estimates(w=None, folds=0, **changes):
    w = np.zeros((folds + 1, len(HEADS), WIDE)) if w is None else w
    return replace(Estimates("additive", HEADS, folds, 0, {"w": w}), **changes)


def tree_estimates(binning):
    bins = binning.bins(BINNED)
    gain = np.zeros((len(HEADS), len(bins.sizes)))
    forests = [empty(2, trees=1)] * len(HEADS)
    return Estimates("trees", HEADS, 0, 0, packed(binning, bins, forests, len(HEADS), gain))


def ruled_task(estimates=None, **changes):
    return replace(PLAN.task, **{"encoding": BINNED, "estimates": estimates, **changes})


def program_at(k=0, j=0, other=-1, nu=0.0, eps=1.0, times=1):
    """A request of the program with a direction of the Hessian."""
    numbers = (np.full(times, v) for v in (k, j, other, 1.0, 0.0))
    at = Directions(*numbers, np.zeros((0, 1, 2)))
    points = Points(np.zeros((1, 1, 2)), np.array([nu]), np.array([eps]), at)
    return ProgramSums((1.0, 1.0), points)


def level_of(folds=0, **changes):
    plan = replace(PLAN, task=ruled_task(), declared=True)
    return replace(boosted.request(boosted.begun(plan, HEADS, 0, folds)), **changes)


def asked_of(site, one_request, task):
    return verdict(site, one_request.step, Broadcast(1, task, one_request))


def unseen(**policy):
    """A site that must not come to look at its rows."""

    def looked(step, one_request):
        pytest.fail(f"step {step!r} came to the rows")  # no Exception, which the guard would hide

    settings = {"masks": True, "schema": SCHEMA, "min_rows": 1, **policy}
    return guarded(SitePolicy("north", SITES, **settings), looked)


def with_and_without(row, rows):
    """Two sites, of which one has the row."""
    for some in (rows, rows.take(np.arange(len(rows)) != row)):
        held = partial(answer, Client("north", some))
        yield guarded(SitePolicy("north", SITES, masks=True, schema=SCHEMA), held)


def test_the_honest_requests_of_a_rule_are_answered():
    site, _ = neighbours(0)
    named = axes(JOB, AGE, subgroups=[[(0, 1), (1, 0), (-1, -1)]])
    for request, estimates, more in (
        (Learn(HEADS, 5, 0, True, np.zeros((6, len(HEADS), WIDE))), None, {}),
        (level_of(), None, {}),
        (level_of(5), None, {}),
        (Calibration(), linear_estimates(folds=5), {}),
        (Calibration(), linear_estimates(folds=5), {"subgroups": named}),
        (SubgroupMasses(), tree_estimates(DECLARED), {"subgroups": named}),
        (program_at(), linear_estimates(folds=2), {}),
        (program_at(eps=0.0), tree_estimates(DECLARED), {}),
        (
            SubgroupDecisions(np.zeros(0)),
            linear_estimates(),
            {"rule": rule(2, named), "subgroups": named},
        ),
    ):
        found = asked_of(site, request, ruled_task(estimates, **more))
        assert isinstance(found, dict), request.step


@pytest.mark.usefixtures("few_trees")
@pytest.mark.parametrize("schema", [None, SCHEMA], ids=["outline", "schema"])
@pytest.mark.parametrize(
    "own",
    [
        {"learner": "trees"},
        {"learner": "linear", "metric": "equalized_odds"},
        {"learner": "additive", "basis": gaussian(3, 0.5, "ranges"), "each": True},
        {"learner": "additive", "basis": by_client()},
        {"learner": "additive", "aware": True},
        {"learner": LogisticRegression()},
        {"probability": "hours"},
    ],
    ids=lambda own: " ".join(
        f"{k}={type(v).__name__ if k == 'basis' else v}" for k, v in own.items()
    ),
)
def test_a_rehearsed_fit_of_a_rule_is_answered(own, schema):
    rows, chosen_method = dealt(ROWS, 2), method("rule", tau=0.05, **own)
    one = fit(rows, chosen_method, positive="yes", schema=schema)
    masked = fit(rows, chosen_method, positive="yes", schema=schema, secure=True)
    np.testing.assert_array_equal(masked.model.decision(ROWS), one.model.decision(ROWS))
    if own.get("basis") != by_client():  # whose rule says who holds a row: by consent
        audit = partial(audit_clients, one.model, rows, held_out=False, schema=schema)
        assert audit(secure=True).accuracy == audit().accuracy


def only_one(job="c"):
    """Rows of which the first alone has this job."""
    values = ROWS.categorical["job"].values()
    at = [i for i, value in enumerate(values) if value == job]
    rest = [i for i, value in enumerate(values) if value != job]
    return ROWS.take(np.array([at[0], *rest]))


def test_weights_that_are_short_fail_at_the_rows_that_reach_beyond_them():
    """A refusal told whether this site, not all of them, has a row of the last category."""
    plain = PLAN.task.encoding  # whose last columns are the jobs
    short = linear_estimates(np.zeros((1, len(HEADS), plain.width - 1)))
    task = ruled_task(short, encoding=plain)
    told = {str(asked_of(s, Calibration(), task)) for s in with_and_without(0, only_one())}
    assert told == {refusal()}


def test_codes_that_are_short_fail_at_the_rows_that_reach_beyond_them():
    sent = level_of().trees
    binning = replace(sent.binning, codes=DECLARED.codes[:-2])
    short = level_of(trees=replace(sent, binning=binning))
    told = {str(asked_of(s, short, ruled_task())) for s in with_and_without(0, only_one())}
    assert told == {refusal()}


@pytest.mark.parametrize("direction", [{"k": 9}, {"other": 9}])
def test_a_direction_that_is_none_fails_where_a_row_is_near_the_threshold(direction):
    """With a narrow smoothing: whether this site has a row of that score, one person."""
    w = np.zeros((1, len(HEADS), WIDE))
    w[..., 0] = 1.0
    estimates = linear_estimates(w)
    eta = predict(estimates, BINNED, 0, ROWS)[0]
    request = program_at(nu=2 * eta[7] - 1, eps=1e-9, **direction)
    told = {str(asked_of(s, request, ruled_task(estimates))) for s in with_and_without(7, ROWS)}
    assert told == {refusal()}


def test_a_column_that_is_no_probability_fails_where_a_row_is_beyond_one():
    """'Is anybody here older than ...': a refusal of one site."""
    age = ROWS.numeric["age"]
    rows = ROWS.take(np.r_[np.argmax(age), np.flatnonzero((age >= 0) & (age <= 1))])
    estimates = Estimates("given", HEADS, 0, 0, columns=("age",) * len(HEADS))
    told = {
        str(asked_of(s, Calibration(), ruled_task(estimates))) for s in with_and_without(0, rows)
    }
    assert told == {refusal()}


def test_trees_over_bins_of_one_person_are_refused_in_estimates_too():
    age = np.sort(ROWS.numeric["age"])
    edges = np.array([age[100] - 1e-9, age[100] + 1e-9])
    at = [name for name, *_ in BINNED.numeric].index("age")
    sizes = np.zeros(len(BINNED.numeric), np.uint16)
    sizes[at] = 2
    narrow = tree_estimates(Binning(edges, sizes, DECLARED.codes))
    assert asked_of(unseen(), Calibration(), ruled_task(narrow)) == refusal()


def test_a_rule_of_odd_shapes_comes_to_no_row():
    good, subgroup = linear_estimates(), axes(JOB, subgroups=[[(0, 1), (-1, -1), (-1, -1)]])
    request = SubgroupDecisions(np.zeros(0))
    for decision in (rule(2), rule(1, subgroup), replace(rule(1), weights=np.ones(3))):
        task = ruled_task(good, rule=decision, subgroups=subgroup)
        assert asked_of(unseen(), request, task) == refusal()
    assert asked_of(unseen(), request, ruled_task(rule=rule(1), subgroups=subgroup)) == refusal()


def odd_points():
    base = program_at()
    points, at = base.points, base.points.directions
    for value in (np.zeros((3, 3, 3)), np.ones(2)):
        for name in ("A", "nu", "eps", "W"):
            yield replace(base, points=replace(points, **{name: value}))
        for name in ("k", "j", "other", "first", "second", "mixed"):
            directions = replace(at, **{name: value})
            yield replace(base, points=replace(points, directions=directions))
    yield replace(base, points=replace(points, eps=np.array([-1.0])))
    yield program_at(k=0.5)
    yield program_at(j=-3)


def test_odd_points_of_the_program_come_to_no_row():
    task = ruled_task(linear_estimates())
    assert {asked_of(unseen(), request, task) for request in odd_points()} == {refusal()}


def test_a_number_of_rows_that_is_a_lie_draws_one_row():
    """Of n rows one in n / 2^17 enters the Hessian: with 240 rows and n = 240 * 2^17 it was one person's."""
    site, _ = neighbours(0)
    w = np.zeros((1, len(HEADS), WIDE))
    w[..., 0] = 1.0
    found = asked_of(site, program_at(), ruled_task(linear_estimates(w), n=240 << 17))
    assert found == refusal()
    assert isinstance(
        asked_of(site, program_at(), ruled_task(linear_estimates(w), n=1 << 20)), dict
    )


def test_an_answer_that_fills_the_memory_is_refused():
    """A request of a few megabytes asked for sums of hundreds of gigabytes."""
    site, estimates = unseen(schema=None, rehearsal=True), linear_estimates()
    site.judgement = replace(unseen().judgement, policy=site.policy)
    many = axes(("job", tuple(map(str, range(50_000))), ()))
    heavy = Kernels(gaussian(10**6), SITES, np.zeros((10**4, PLAN.task.encoding.width)))
    decision = Decision((1.0, 1.0), np.zeros((10**6 + 1, 2)), kernels=heavy)
    for request, task in (
        (program_at(times=100_000), ruled_task(estimates)),
        (SubgroupMasses(), ruled_task(estimates, subgroups=many)),
        (SubgroupCounts(), ruled_task(subgroups=many)),
        (level_of(count=np.zeros((100_000, 2))), ruled_task()),
        (SubgroupDecisions(np.zeros(0)), ruled_task(estimates, rule=decision, subgroups=axes(JOB))),
        (Learn(HEADS, 0, 0, False, np.zeros((900, len(HEADS), WIDE))), ruled_task()),
    ):
        assert asked_of(site, request, task) == refusal()


@pytest.mark.parametrize(
    "strange",
    [
        (*HEADS, replace(HEADS[1], name="again")),
        (*HEADS, Head("odd", ("sex", "sex"), ("g0", "g1"))),
        (*HEADS, Head("odd", ("sex",), ())),
        (*HEADS, Head("odd", ("sex",), ("g0",), other=("g1", "g1"))),
        (*HEADS, Head("odd", ("job",), ("a",))),
        (*HEADS, Head("positive", label=1)),
    ],
)
def test_heads_are_the_label_and_groups_each_once(strange):
    w = np.zeros((1, len(strange), WIDE))
    assert asked_of(unseen(), Learn(strange, 0, 0, False, w), ruled_task()) == refusal()
    other = linear_estimates(w, heads=strange)
    assert asked_of(unseen(), Calibration(), ruled_task(other)) == refusal()
    first = linear_estimates(heads=HEADS[::-1])
    assert asked_of(unseen(), Calibration(), ruled_task(first)) == refusal()


@pytest.mark.parametrize(("folds", "seed"), [(3, 0), (200, 0), (-1, 0), (5, 7)])
def test_folds_of_learners_are_the_agreed_ones(folds, seed):
    w = np.zeros((abs(folds) + 1, len(HEADS), WIDE))
    assert asked_of(unseen(), Learn(HEADS, folds, seed, False, w), ruled_task()) == refusal()
    request = replace(level_of(), folds=folds, seed=seed)
    assert asked_of(unseen(), request, ruled_task()) == refusal()
    other = linear_estimates(w, folds, seed=seed)
    assert asked_of(unseen(), Calibration(), ruled_task(other)) == refusal()


def test_nodes_of_trees_are_there_and_named_once():
    for changes in (
        {"count": np.zeros((2, 2))},
        {"count": np.array([[0.5, 0.0]])},
        {"count": np.array([[0.0, 1.0]])},
        {"count": np.zeros(2)},
        {"level": 60},
        {"level": -1},
    ):
        assert asked_of(unseen(), level_of(**changes), ruled_task()) == refusal()
    sent = level_of().trees
    for changes in (
        {"binning": replace(sent.binning, edge_sizes=np.array([-1.0, 4.0]))},
        {"binning": replace(sent.binning, codes=np.full(3, 300.0))},
        {"done": np.zeros(1, np.uint8)},
        {"done": sent.done.astype(float)},
        {"growing": sent.growing[None]},
    ):
        wrong = level_of(trees=replace(sent, **changes))
        assert asked_of(unseen(), wrong, ruled_task()) == refusal()


def test_leaves_of_fewer_rows_than_the_site_says_are_refused_before_its_rows():
    """The request says how many rows of all sites its nodes have; one that says less is refused unseen.  One that lies
    is not: a site with three rows in a node cannot know whether others have seventeen (docs/trees.md)."""
    for wrong in (20, 0, -5):
        small = level_of(min_rows=wrong)
        assert asked_of(unseen(min_rows=21), small, ruled_task()) == refusal()
    site, _ = neighbours(0)
    assert isinstance(asked_of(site, level_of(min_rows=21), ruled_task()), dict)


def test_under_epsilon_there_are_no_estimates_but_linear_ones_and_no_sum_of_them_without_noise():
    site = unseen(epsilon=1.0)
    good = linear_estimates()
    learning = Learn(HEADS, 0, 0, False, np.zeros((1, len(HEADS), WIDE)))
    for request, task in (
        (learning, ruled_task()),
        (level_of(), ruled_task()),
        (FineCounts(np.zeros((2, 1))), ruled_task()),
        (program_at(), ruled_task(good)),
        (Calibration(), ruled_task(good)),
        (SubgroupMasses(), ruled_task(good, subgroups=axes(JOB))),
        (noisy(PrivateCounts), ruled_task(replace(good, kind="trees"), n=0)),
        (noisy(PrivateCounts), ruled_task(replace(good, folds=2), n=0)),
        (noisy(PrivateCounts), ruled_task(replace(good, aware=True), n=0)),
        (noisy(PrivateCounts), ruled_task(replace(good, columns=("hours", "")), n=0)),
        (rates_at(eps=-1.0), ruled_task(good)),
        (rates_at(error_costs=(0.0, 1.0)), ruled_task(good)),
        (rates_at(A=np.zeros((2, 2))), ruled_task(good)),
        (rates_at(A=np.full((1, 2), np.nan)), ruled_task(good)),
        (rates_at(directions=np.array([[0.0, 0, 1, 2, 0]])), ruled_task(good)),
        (rates_at(directions=np.array([[1.0, 0, 1, 1, 1]])), ruled_task(good)),
        (rates_at(), ruled_task()),
        (noisy(PrivateHeads, heads=HEADS, w=np.zeros((2, WIDE - 1))), ruled_task()),
        (noisy(PrivateHeads, heads=HEADS * 2, w=np.zeros((4, WIDE))), ruled_task()),
        (noisy(PrivateHeads, heads=(), w=np.zeros((0, WIDE))), ruled_task()),
        (noisy(PrivateDecisions, w=np.zeros(WIDE)), ruled_task(good, rule=rule(1))),
    ):
        assert asked_of(site, request, task) == refusal()


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(requests(), st.integers(0, len(ROWS) - 1))
def test_whatever_is_asked_under_masks_the_verdict_does_not_hang_on_a_row(request, row):
    one, other = (verdict(site, *request) for site in neighbours(row))
    assert one == other


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(requests(private=True), st.integers(0, len(ROWS) - 1))
def test_whatever_is_asked_under_epsilon_a_row_moves_it_by_no_more_than_is_charged(request, row):
    """For the noise that was added, by field: the squares of (what a row moves / deviation) add up to 1 / z^2 at most,
    which is what the ledger writes down. Where there is no answer, there is none from either site."""
    step, broadcast = request
    ledgers, scales, found = [], [], []
    for site in neighbours(row, epsilon=1e6):
        site.answer.sampler = lambda scale, size: scales.append(scale) or np.zeros(size, np.int64)
        ledgers.append(site.answer.ledger)
        try:
            found.append(site(step, broadcast).sums)
        except FederationError as error:
            found.append(str(error))
    one, other = found
    assert isinstance(one, str) == isinstance(other, str)
    if isinstance(one, str):
        assert one == other
        assert ledgers[0].multipliers == ledgers[1].multipliers
        return
    assert scales[: len(one)] == scales[len(one) :]
    deviation = dict(zip(deviations(broadcast.request, broadcast.task), scales, strict=False))
    moved = sum(
        (np.linalg.norm(one[name] - other[name]) * 2.0 ** bits(name, broadcast.task) / sigma) ** 2
        for name, sigma in deviation.items()
    )
    assert [ledger.multipliers for ledger in ledgers] == [[broadcast.request.z]] * 2
    assert moved <= (1 + 1e-9) / broadcast.request.z**2


def test_the_property_would_see_a_site_that_looks_at_its_rows_first():
    """The same requests at a site without a guard: a group that is left out is refused where the site has one."""
    only = np.flatnonzero(ROWS.sensitive_features["sex"].codes == 1)[0]
    few = ROWS.take(np.r_[only, np.flatnonzero(ROWS.sensitive_features["sex"].codes == 0)])
    task = replace(PLAN.task, sensitive_features=(("sex", ("g0",)),))
    seen = []
    for rows in (few, few.take(np.arange(1, len(few)))):
        try:
            seen.append(answer(Client("north", rows), "sums", Broadcast(1, task, sums_at(task))))
        except DataError as error:
            seen.append(str(error))
    assert isinstance(seen[0], str)
    assert isinstance(seen[1], Reply)
