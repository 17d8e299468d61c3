"""Forged certificates: whatever is changed, left out or invented is refused by the sums, without a key."""

import copy
import hashlib
import json

import numpy as np
import pytest
from helpers import held

from agnosticfair import audit
from agnosticfair.auditing import proof
from agnosticfair.auditing import subgroups as counted_subgroups
from agnosticfair.auditing.certificate import Certificate, limit_sentence
from agnosticfair.auditing.proof import scope, unchecked, verify
from agnosticfair.auditing.repeats import note_of, one_of_each_note
from agnosticfair.auditing.subgroups import CountedSubgroups
from agnosticfair.commands.audit import statement
from agnosticfair.mathematics.basis import gaussian, subgroups


def certificate(n=4000, **send):
    table, decided = held(n)
    certificate = audit(decided, table, sensitive_features="sex", precision=0.2, **send)
    return certificate, json.loads(json.dumps(certificate.to_json()))


def passing(told):
    """The certificate, which nothing is wrong with before a test changes it."""
    assert verify(proof.sealed(told)) == ()
    return told


@pytest.fixture(scope="module")
def honest():
    return passing(certificate(subgroups=("age", "job"))[1])


@pytest.fixture(scope="module")
def requested(honest):
    about = {"request": dict(ASKED), "sensitive_feature": "sex", "data": {"rows": {"rows": 4000}}}
    return passing(honest | about)


@pytest.fixture(scope="module")
def over_kernels():
    return passing(certificate(basis=gaussian(4, 1.0), subgroups=("job",), mixtures=True)[1])


@pytest.fixture(scope="module")
def above_one():
    return passing(certificate(basis=lambda X: np.full((4000, 1), 1.5), subgroups=("job",))[1])


def put(*path_and_value):
    """A forgery: one value put in the place of another."""
    *path, value = path_and_value

    def forge(told):
        at = told
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = value(at[path[-1]]) if callable(value) else value

    return forge


def worst_at(told):
    """Where the worst estimable subgroup stands, and its place among the sums."""
    k = max(range(1, len(told["subgroups"])), key=lambda k: told["subgroups"][k]["high"])
    name = told["subgroups"][k]["name"]
    made = certificate_subgroups(told)
    return k, made.index(name)


def certificate_subgroups(told):
    return [*CountedSubgroups.from_json(told["sums"]).names]


def relisted(told):
    """Everything that follows from the subgroups that are left, made anew as a skilled forger would."""
    able = [subgroup for subgroup in told["subgroups"] if subgroup["estimable"]]
    told["upper"] = max(subgroup["high"] for subgroup in able)
    worst = max(able, key=lambda subgroup: subgroup["difference"])
    told["worst_difference"] = worst["difference"]


def without_worst(told, from_sums=True):
    k, place = worst_at(told)
    del told["subgroups"][k]
    if from_sums:
        del told["sums"]["subgroups"][place], told["sums"]["counts"][place]
    relisted(told)


def without_all_pairs(told):
    """No subgroup of two values, and yet the depth is two."""
    keep = [k for k, subgroup in enumerate(told["sums"]["subgroups"]) if len(subgroup) < 2]
    told["sums"]["subgroups"] = [told["sums"]["subgroups"][k] for k in keep]
    told["sums"]["counts"] = [told["sums"]["counts"][k] for k in keep]
    told["subgroups"] = [subgroup for subgroup in told["subgroups"] if subgroup["depth"] < 2]
    relisted(told)


def without_a_column(told):
    """All subgroups of a column are gone, and the column is still among the axes."""
    keep = [
        k
        for k, subgroup in enumerate(told["sums"]["subgroups"])
        if all(a != 0 for a, _ in subgroup)
    ]
    name = told["sums"]["axes"][0][0]
    told["sums"]["subgroups"] = [told["sums"]["subgroups"][k] for k in keep]
    told["sums"]["counts"] = [told["sums"]["counts"][k] for k in keep]
    told["subgroups"] = [subgroup for subgroup in told["subgroups"] if name not in subgroup["name"]]
    relisted(told)


def alike_in_worst(told):
    """The decisions of the worst subgroup are made alike in its sums, and its record with them."""
    _, place = worst_at(told)
    strata = np.array(told["sums"]["counts"][place])
    strata[:, :, 1] = strata[:, :, 1].mean(axis=0, keepdims=True).astype(int)
    told["sums"]["counts"][place] = strata.tolist()


def fewer_rows_in_worst(told):
    k, place = worst_at(told)
    told["sums"]["counts"][place] = (np.array(told["sums"]["counts"][place]) // 50).tolist()
    told["subgroups"][k]["estimable"] = False
    relisted(told)


def minimum(value):
    def forge(told):
        told["sums"]["min_share"] = value
        told["subgroups"] = [p for p in told["subgroups"] if p["rows"] >= value * told["n"]]
        keep = [
            k for k, c in enumerate(told["sums"]["counts"]) if np.sum(c) >= value * told["n"] * 0.5
        ]
        told["sums"]["subgroups"] = [told["sums"]["subgroups"][k] for k in keep]
        told["sums"]["counts"] = [told["sums"]["counts"][k] for k in keep]
        relisted(told)

    return forge


def limit(value, kept=True, says=None):
    def forge(told):
        told |= {"limit": value, "kept": kept}
        told["sentence"] = (
            says or f"Keeps the limit {value:g} with 95% confidence in each of 9 subgroups."
        )

    return forge


def claimed(value, kept):
    """All that is said of a limit, in the right words and places."""

    def forge(told):
        says = limit_sentence(value, bool(kept), Certificate.from_json(told))
        told |= {"limit": value, "kept": kept, "sentence": says, "notes": [says, *told["notes"]]}
        told["upper"] = value if kept else told["upper"]

    return forge


def note(text):
    return lambda told: told["notes"].append(text)


def without_its_search(told):
    """The sums of kernels are gone, and the bound over them is invented."""
    del told["sums"]["psi"], told["sums"]["kernel_duals"]
    told["kernels"]["upper"] = 0.001
    bounds = [subgroup["high"] for subgroup in told["subgroups"] if subgroup["estimable"]]
    told["upper"] = max(*bounds, told["mixtures"] or 0.0)


def many_rows(times):
    def forge(told):
        told["n"] *= times
        for name in ("counts", "pairs"):
            told["sums"][name] = (np.array(told["sums"][name]) * times).tolist()

    return forge


def one_long_column(told):
    values = [f"v{k}" for k in range(200_000)]
    told["sums"] |= {"axes": [["z", values, []]], "subgroups": [[]], "pairs": [0] * 199_999}
    told["sums"]["pairs"].append(told["n"])
    told["sums"]["counts"], told["subgroups"] = told["sums"]["counts"][:1], told["subgroups"][:1]


def two_columns_of_one_name(told):
    names = [name for name, *_ in told["sums"]["axes"]]
    told["sums"]["axes"][1][0] = names[0]
    for subgroup in told["subgroups"]:
        subgroup["name"] = subgroup["name"].replace(names[1], names[0])
    told["notes"] = [text.replace(names[1], names[0]) for text in told["notes"]]


FORGERIES = {
    "worst subgroup dropped": without_worst,
    "worst subgroup dropped from the list alone": lambda told: without_worst(told, False),
    "all pairs dropped": without_all_pairs,
    "a column dropped": without_a_column,
    "worst subgroup made alike": alike_in_worst,
    "worst subgroup made small": fewer_rows_in_worst,
    "worst subgroup last is not estimable": put("subgroups", -1, "estimable", lambda v: not v),
    "least 0.9": minimum(0.9),
    "least 0.6": minimum(0.6),
    "depth 1": put("sums", "depth", 1),
    "depth 0": put("sums", "depth", 0),
    "depth below nothing": put("sums", "depth", -3),
    "depth without end": put("sums", "depth", 10**9),
    "another format": put("format", "agnosticfair-certificate-9"),
    "confidence 0.5": put("confidence", 0.5),
    "confidence 0.999": put("confidence", 0.999),
    "precision 0.9": put("precision", 0.9),
    "invented accuracy": put("accuracy", 0.99),
    "no accuracy": put("accuracy", None),
    "another group": put("groups", ["g0", "g9"]),
    "one group less": put("groups", ["g0"]),
    "noise that was not there": put("noisy", True),
    "invented rate in a subgroup": put("subgroups", 0, "rates", 0, "rate", 0.5),
    "invented impact in a subgroup": put("subgroups", 0, "rates", 0, "impact", 1.0),
    "a group not compared": put("subgroups", 0, "rates", 0, "compared", False),
    "invented ratio": put("subgroups", 0, "ratio", 0.99),
    "ratio's bound": put("subgroups", 0, "ratio_low", 0.8),
    "difference of everybody": put("difference", 0.0),
    "worst difference": put("worst_difference", 0.01),
    "worst difference, larger": put("worst_difference", 0.99),
    "pair turned round": put("subgroups", 1, "pair", lambda v: v[::-1]),
    "the interval begins higher": put("subgroups", 0, "low", lambda v: v + 0.01),
    "the interval ends lower": put("subgroups", 0, "high", lambda v: v - 0.01),
    "depth of a subgroup": put("subgroups", 1, "depth", 0),
    "upper": put("upper", 0.05),
    "upper by rounding": put("upper", lambda v: v - 1e-6),
    "n": put("n", lambda v: v + 1),
    "another metric": put("metric", "equal_opportunity"),
    "a metric that is none": put("metric", "kindness"),
    "kept limit": limit(0.05),
    "kept limit in the right words": limit(
        0.05, True, "Keeps the limit 0.05 with 95% confidence in each of 13 estimable subgroups."
    ),
    "a limit in other words": limit(0.99, True, "This model is fair to everybody."),
    "another sentence": put("sentence", "This model is fair to everybody."),
    "kept without a limit": put("kept", True),
    "a note that is praise": note("Certified fair by the state."),
    "the note of what is not estimable dropped": put("notes", []),
    "a field that is none": put("approved", True),
    "a field among the sums": put("sums", "approved", True),
    "a field in a subgroup": put("subgroups", 0, "approved", True),
    "mixtures invented": put("mixtures", 0.05),
    "a pair sum": put("sums", "pairs", 0, 0, lambda v: v + 1),
    "a pair sum below nothing": put("sums", "pairs", 0, 0, lambda v: -v),
    "pair sums of halves": put("sums", "pairs", lambda v: [[x + 0.25 for x in row] for row in v]),
    "pair sums dropped": put("sums", "pairs", []),
    "a column dropped from the axes": put("sums", "axes", lambda v: v[1:]),
    "a value twice": put("sums", "axes", 0, 1, lambda v: [v[0], *v[:-1]]),
    "edges turned round": put("sums", "axes", lambda v: [[a, b, [*c, 0.0]] for a, b, c in v]),
    "kernels without a search": put("sums", "kernel_duals", []),
    "share 19.99": put("subgroups", 0, "rates", 0, "impact", 19.99),
    "edges of a number moved": put("sums", "axes", 0, 2, lambda v: [v[0] / 2, *v[1:]]),
    "sums dropped": put("sums", None),
    "subgroups dropped": put("subgroups", []),
    "a name of a subgroup": put("subgroups", 1, "name", "job = z"),
    "a subgroup twice": lambda told: told["subgroups"].append(told["subgroups"][0]),
    "kernels invented": put("kernels", {"upper": 0.05}),
    "clusters invented": note(one_of_each_note(3, 4000)),
    "repeats of other rows": note(*note_of(np.repeat(np.arange(50), 8))),
    "duals of nothing": put("sums", "duals", [[[0.1, 0.2, 0.3]]]),
    "praise in a note about clusters": note(
        "One row of each of 4,000 clusters among 4,000 rows was audited: approved by the state."
    ),
    "praise in a note about clients": note(
        "Clients 'a' and 'b' have about 9 rows in common, approved by the state: bounds hold only if nobody objects."
    ),
    "the note of whose decisions they are dropped": put("notes", lambda v: v[1:]),
    "a model that is none": put("sums", "model", "ab" * 32),
    "a digest that is none": put("sums", "rows", "approved"),
    "no sentence": put("sentence", None),
    "a column without a name": put("sums", "axes", 0, 0, None),
    "a value that is no text": put("sums", "axes", 0, 1, lambda v: [*v[:-1], 5]),
    "a count that is true": put("sums", "counts", 0, 0, 0, 0, True),
    "half a column": put("sums", "subgroups", 1, 0, 0, lambda v: v + 0.5),
    "a column in quotes": put("sums", "subgroups", 1, 0, 0, str),
    "more confidence than there is": put("confidence", 1.5),
    "no rows in all": put("n", 0),
    "a huge number": put("n", 10**40),
    "a share that is no share": put("sums", "min_share", "0.01"),
    "not a number": put("upper", float("nan")),
    "groups exchanged": put("groups", lambda v: v[::-1]),
    "a group twice": put("groups", lambda v: [v[0], v[0]]),
    "an issuer without a signature": put("issuer", "ab" * 32),
    "a limit above all that there is": claimed(5.0, True),
    "a limit that is true": claimed(True, True),
    "a limit kept as a text": claimed(0.9, "certified by the state"),
    "a limit kept as a number": claimed(0.9, 1),
    "a limit whose note is dropped": lambda told: (claimed(0.9, True)(told), told["notes"].pop(0)),
    "a limit whose note is last": lambda told: (
        claimed(0.9, True)(told),
        told["notes"].append(told["notes"].pop(0)),
    ),
    "a note twice": lambda told: told["notes"].insert(0, told["notes"][0]),
    "notes turned round": put("notes", lambda v: v[::-1]),
    "more rows than there are people": many_rows(10**13),
    "more rows than a note says": many_rows(10**4),
    "a column of very many values": one_long_column,
    "two columns of one name": two_columns_of_one_name,
    "a request that is none": put("request", None),
    "a request in words": put("request", "approved by the state"),
    "subgroups in another order": lambda told: [
        told["sums"][name].insert(1, told["sums"][name].pop()) for name in ("subgroups", "counts")
    ],
    "a sentence dropped for an empty one": put("sentence", ""),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forgery_is_refused_without_a_key(name, honest):
    changed = copy.deepcopy(honest)
    FORGERIES[name](changed)
    issuer = {"issuer": changed["issuer"]} if "issuer" in changed else {}
    try:
        sealed = proof.sealed(changed) | issuer
        sealed["digest"] = hashlib.sha256(proof.canonical(sealed)).hexdigest()
    except ValueError:  # a number that JSON has not
        sealed = {**changed, "digest": "00"}
    assert verify(sealed), name


@pytest.mark.parametrize(
    "forge",
    [
        put("kernels", "worst_difference", lambda v: v - 0.05),
        put("kernels", "worst_accuracy", lambda v: v + 0.01),
        put("kernels", "worst_accuracy", None),
        put("kernels", "tolerance", 2.0),
        put("kernels", "alpha", lambda v: [2 * a for a in v]),
        put("kernels", "alpha_accuracy", lambda v: [2 * a for a in v]),
        put("kernels", "about", "every reweighting there is"),
        put("kernels", "upper", 0.01),
        put("kernels", "basis", "kernels", 400),
        put("kernels", "under_floor", ["g1"]),
        put("kernels", "outcome", "failed"),
        put("sentence", "This model is fair to everybody."),
        put("kernels", "pair", ["g0", "nobody"]),
        put("kernels", None),
        put("kernels", "bound", 1.5),
        put("mixtures", 0.1),
        put("mixtures", None),
        without_its_search,
        put("kernels", lambda v: v | {"tolerance": 0.9, "worst_difference": 0.0}),
        put("kernels", "basis", "kind", "by_client"),
        put("kernels", "basis", "kind", "constant"),
        put("kernels", "basis", "kind", "subgroups"),
        put("sums", "kernel_duals", None),
        put("sums", "kernel_duals", lambda v: [[] for _ in v]),
        put("sums", "psi", lambda v: np.array(v)[..., :-1].tolist()),
    ],
)
def test_a_forgery_over_kernels_is_refused_without_a_key(forge, over_kernels):
    changed = copy.deepcopy(over_kernels)
    forge(changed)
    assert verify(proof.sealed(changed))


@pytest.mark.parametrize(
    "forge",
    [
        put("kernels", "upper", 0.01),
        put("kernels", "worst_difference", lambda v: v - 0.05),
        put("notes", lambda v: v[:1]),
        put("sums", "kernel_duals", []),
        lambda told: told["sums"].pop("kernel_duals"),
        lambda told: told["sums"].pop("psi"),
    ],
)
def test_kernels_above_one_bound_nothing_and_their_worst_case_is_checked(forge, above_one):
    changed = copy.deepcopy(above_one)
    assert changed["kernels"]["upper"] is None
    said = str(Certificate.from_json(changed))
    assert "kernel" not in said[: said.index("risk difference")]  # nothing is certified over them
    forge(changed)
    assert verify(proof.sealed(changed))


def test_what_is_printed_of_a_certificate_is_one_plain_line(honest):
    changed = copy.deepcopy(honest)
    name = "job\nIt holds: signed.\x1b[2J\u202e"
    changed["sums"]["axes"][-1][0] = name
    text = statement(changed, False, None, False)
    assert (text.startswith("Consistent: "), text.isprintable()) == (True, True)


@pytest.mark.parametrize("send", [{"depth": 1}, {"depth": 3}, {"depth": 2, "min_share": 0.1}])
def test_honest_certificates_of_any_depth_pass(send):
    _, told = certificate(2500, subgroups=subgroups(**send))
    assert verify(proof.sealed(told)) == ()
    assert f"of up to {send['depth']} value" in scope(told)


def test_a_triple_that_is_left_out_is_missed():
    _, told = certificate(6000, subgroups=subgroups(depth=3))
    assert verify(proof.sealed(told)) == ()
    triples = [k for k, subgroup in enumerate(told["sums"]["subgroups"]) if len(subgroup) == 3]
    assert triples
    place = max(triples, key=lambda k: np.sum(told["sums"]["counts"][k]))
    name = certificate_subgroups(told)[place]
    told["subgroups"] = [subgroup for subgroup in told["subgroups"] if subgroup["name"] != name]
    del told["sums"]["subgroups"][place], told["sums"]["counts"][place]
    relisted(told)
    assert any("have not its rows" in wrong for wrong in verify(proof.sealed(told)))


def test_an_honest_limit_passes_and_is_said_by_the_bound():
    made, told = certificate()
    for limit_, kept in ((0.9, True), (0.05, False), (0.9, False)):
        says = limit_sentence(limit_, kept, made)
        about = {"limit": limit_, "kept": kept, "sentence": says}
        about |= {"notes": [says, *told["notes"]], "upper": limit_ if kept else made.upper}
        assert verify(proof.sealed(told | about)) == ()
        if kept:  # the bound of a model that these rows have chosen is no claim
            assert verify(proof.sealed(told | about | {"upper": made.upper}))


def test_a_signature_that_was_taken_off_is_noticed(honest):
    pytest.importorskip("cryptography")
    signed = proof.sealed(honest, bytes(range(32)))
    bare = {key: value for key, value in signed.items() if key != "signature"}
    assert any("taken off" in wrong for wrong in verify(bare))
    other = proof.sealed(honest, bytes(32))
    swapped = {**signed, "signature": other["signature"]}
    assert verify(swapped)


def test_the_digest_of_the_rows_is_that_of_rows_in_any_order(honest):
    table, decided = held(4000)
    order = np.random.default_rng(0).permutation(len(table))
    again = audit(decided[order], table.take(order), sensitive_features="sex", precision=0.2)
    assert again.sums["rows"] == honest["sums"]["rows"]
    other = decided.copy()
    other[0] = not other[0]
    changed = audit(other, table, sensitive_features="sex", precision=0.2)
    assert changed.sums["rows"] != honest["sums"]["rows"]
    assert len(unchecked(honest)) == 2
    free = {"command": "audit", "others": {"race": "It is fair."}, "data": {"x": {"rows": 10**9}}}
    assert unchecked(honest | free)[2] == "its command, data, others"
    bare = {k: v for k, v in honest["sums"].items() if k != "rows"}
    assert "no digest" in unchecked(honest | {"sums": bare})[-1]


ASKED = {"sensitive_features": ["sex"], "intersections": False, "precision": 0.2, "floor": 0.05}
ASKED |= {"metric": "demographic_parity", "depth": 2, "min_share": 0.01, "mixtures": False}
ASKED |= {"confidence": 0.95, "kernels": None, "cluster": None, "columns": None, "bins": 4}
ASKED |= dict.fromkeys(proof.REQUEST - {*ASKED})


def test_a_certificate_carries_the_commands_own_parameters():
    from inspect import signature

    from agnosticfair.commands.audit import audit as command

    assert {*signature(command).parameters} >= proof.REQUEST


def test_single_values_hold_a_request_of_pairs_that_are_too_many(honest, monkeypatch):
    about = {"request": dict(ASKED), "sensitive_feature": "sex", "data": {"rows": {"rows": 4000}}}
    assert verify(proof.sealed(honest | about | {"request": ASKED | {"depth": 1}}))
    monkeypatch.setattr(counted_subgroups, "MAX_PAIRS", 5)
    made = certificate()[1] | about
    assert made["sums"]["depth"] == 1 < ASKED["depth"]
    assert verify(proof.sealed(made)) == ()


@pytest.mark.parametrize(
    "forge",
    [
        put("sensitive_feature", "race"),
        put("data", "rows", "rows", 1_000_000),
        put("request", "precision", 0.1),
        put("request", "sensitive_features", ["sex", "race"]),
        put("request", "metric", "equal_opportunity"),
        put("request", "depth", 3),
        put("request", "min_share", 0.001),
        put("request", "mixtures", True),
        put("request", "confidence", 0.99),
        put("request", "kernels", 20),
        put("request", "floor", 0.5),
        put("request", "columns", ["age"]),
        put("request", "cluster", "person"),
        put("request", {}),
        put("request", "approved", True),
        put("request", "sensitive_features", []),
        put("request", "depth", 2.0),
        put("request", "mixtures", 0),
        put("request", "bins", 1),
        put("data", "rows", "rows", 4000.0),
        put("data", "rows", "approved", True),
        put("data", {}),
    ],
)
def test_a_certificate_is_of_the_audit_that_it_says_was_asked_for(forge, requested):
    changed = copy.deepcopy(requested)
    forge(changed)
    assert verify(proof.sealed(changed))
