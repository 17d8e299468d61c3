"""Certificates that travel: verified without rows, and every tampering is found."""

import copy
import json

import pytest
from helpers import held

from agnosticfair import audit
from agnosticfair.auditing import proof
from agnosticfair.auditing import subgroups as named
from agnosticfair.auditing.proof import verify
from agnosticfair.errors import ModelError, SettingsError
from agnosticfair.mathematics import confidence
from agnosticfair.mathematics.basis import gaussian
from agnosticfair.monitoring.baseline import baseline_of


def certificate(**send):
    table, decided = held(3000)
    certificate = audit(decided, table, sensitive_features="sex", precision=0.2, **send)
    return json.loads(json.dumps(certificate.to_json()))


@pytest.mark.parametrize(
    "send",
    [
        {},
        {"mixtures": True, "basis": gaussian(4, 1.0), "subgroups": ("job",)},
        {"basis": gaussian(4, 1.0)},
        {"basis": gaussian(4, 1.0), "metric": "bounded_group_loss"},
    ],
)
def test_an_untouched_certificate_is_verified_without_rows(send):
    seal = proof.sealed(certificate(**send), bytes(range(32)))
    assert verify(seal) == ()
    assert verify(seal, seal["signature"]["public_key"]) == ()
    other = proof.sealed(seal, bytes(32))["signature"]["public_key"]
    assert "another key" in verify(seal, other)[0]
    assert "not signed" in verify(proof.sealed(seal), other)[0]


@pytest.mark.parametrize("maximum", [0, 1000])
def test_columns_with_too_many_pairs_of_values_have_single_values_and_say_so(monkeypatch, maximum):
    """maximum: of values whose pairs are counted for who verifies and monitors."""
    monkeypatch.setattr(named, "MAX_PAIRS", 5)
    monkeypatch.setattr(named, "MAX_PAIRED", maximum)
    send = certificate()
    assert {len(subgroup) for subgroup in send["sums"]["subgroups"]} == {0, 1}
    assert any("single values" in note and "--columns" in note for note in send["notes"])
    assert verify(proof.sealed(send)) == ()
    more = changed(send, ("sums", "counts", 1, 0, 0, 0), 5)
    assert verify(proof.sealed(more))
    kept = [k for k in range(len(send["sums"]["counts"])) if k != 1]
    fewer = copy.deepcopy(send)
    for name in ("subgroups", "counts"):
        fewer["sums"][name] = [fewer["sums"][name][k] for k in kept]
    assert "left out" in " ".join(verify(proof.sealed(fewer)))


def test_a_monitor_refuses_a_certificate_without_pairs_of_values(monkeypatch):
    monkeypatch.setattr(named, "MAX_PAIRS", 5)
    monkeypatch.setattr(named, "MAX_PAIRED", 0)
    table, decided = held(3000)
    with pytest.raises(ModelError, match="--columns"):
        baseline_of(audit(decided, table, sensitive_features="sex", precision=0.2))


def leaves(value, path=()):
    """Every number, text and word of a JSON value, and where it stands."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, (*path, key))
    elif isinstance(value, list):
        for k, inner in enumerate(value):
            yield from leaves(inner, (*path, k))
    else:
        yield path, value


def changed(told, path, value):
    told = copy.deepcopy(told)
    at = told
    for key in path[:-1]:
        at = at[key]
    if isinstance(value, bool) or value is None:
        at[path[-1]] = not value
    elif isinstance(value, str):
        at[path[-1]] = value + "x"
    else:
        at[path[-1]] = value + 1 if isinstance(value, int) else value * 1.001 + 1e-6
    return told


@pytest.mark.slow
def test_more_than_a_hundred_tamperings_are_refused():
    send = {"mixtures": True, "basis": gaussian(4, 1.0)}
    seal = proof.sealed(certificate(subgroups=("job",), **send), bytes(range(32)))
    key = seal["signature"]["public_key"]
    everything = [*leaves(seal)]
    some = everything[:: len(everything) // 110]
    assert len(some) > 100
    assert any("duals" in path for path, _ in some)
    for path, value in some:
        assert verify(changed(seal, path, value), key), path
    for gone in seal:
        cut = {k: v for k, v in seal.items() if k != gone}
        assert verify(cut, key), gone


@pytest.mark.slow
def test_a_forger_who_makes_the_digest_anew_is_refuted_by_the_sums():
    one_certificate = certificate(subgroups=("job",))
    numbers = [
        (path, value)
        for path, value in leaves(one_certificate)
        if path[:2] not in (("sums", "min_share"), ("sums", "depth"), ("sums", "axes"))
        and path[0] in ("sums", "subgroups", "upper", "n", "confidence")
        and isinstance(value, int | float)
    ]
    assert len(numbers) > 100
    for path, value in numbers[:: len(numbers) // 100]:
        assert verify(proof.sealed(changed(one_certificate, path, value))), path
    assert "no certificate" in verify({"format": "other"})[0]
    assert verify([1])


def test_kernels_are_refuted_by_their_sums():
    one_certificate = certificate(basis=gaussian(4, 1.0), subgroups=())
    assert [subgroup["name"] for subgroup in one_certificate["subgroups"]] == ["overall"]
    rows = [path for path, _ in leaves(one_certificate) if "psi" in path and path[-1] == 4]
    assert len(rows) == 8
    for path in [("upper",), ("n",), ("kernels", "upper"), *rows]:
        value = dict(leaves(one_certificate))[path]
        assert verify(proof.sealed(changed(one_certificate, path, value))), path
    more = copy.deepcopy(one_certificate)
    more["sums"]["psi"][0][0][0][0] = one_certificate["n"]
    assert verify(proof.sealed(more))
    bare = one_certificate | {"sums": None}
    assert "no sums" in verify(proof.sealed(bare))[0]


def test_duals_show_the_bounds_over_mixtures_and_kernels_without_a_search(monkeypatch):
    one_certificate = certificate(mixtures=True, basis=gaussian(4, 1.0), subgroups=("job",))
    honest = one_certificate["mixtures"], one_certificate["kernels"]["upper"]
    duals = [
        path for path, _ in leaves(one_certificate) if "duals" in path or "kernel_duals" in path
    ]
    assert len(duals) > 100

    def look(*_):
        raise AssertionError("nothing is to be solved again")

    monkeypatch.setattr(confidence, "worst_difference", look)
    assert verify(proof.sealed(one_certificate)) == ()
    refused = 0
    for path in duals[:: len(duals) // 20]:
        value = dict(leaves(one_certificate))[path]
        wrong = verify(proof.sealed(changed(one_certificate, path, value + 0.01)))
        refused += bool(wrong)  # other multipliers may show the same: weak duality
    assert refused > 5
    for at, bound in (("mixtures", honest[0]), ("kernels", honest[1])):
        lower = (
            {**one_certificate, "mixtures": bound - 0.01}
            if at == "mixtures"
            else copy.deepcopy(one_certificate)
        )
        if at == "kernels":
            lower["kernels"]["upper"] = bound - 0.01
        assert verify(proof.sealed(lower)), at
    for cut in (one_certificate["sums"]["duals"], one_certificate["sums"]["kernel_duals"]):
        kept = cut.pop()
        assert verify(proof.sealed(one_certificate))
        cut += [kept, kept]
        assert verify(proof.sealed(one_certificate))
        cut.pop()


def test_keys_are_kept_by_their_owner(tmp_path):
    path = tmp_path / "issuer.key"
    public = proof.new_key(path)
    assert path.stat().st_mode & 0o077 == 0
    seal = proof.sealed(certificate(subgroups=("job",)), proof.read_key(path))
    assert seal["signature"]["public_key"] == public
    with pytest.raises(SettingsError, match="cannot write"):
        proof.new_key(path)
    (tmp_path / "no.key").write_text("abc")
    with pytest.raises(SettingsError, match=r"64 hexadecimal.*digits"):
        proof.read_key(tmp_path / "no.key")


@pytest.mark.parametrize("nested", [100_000, 900])
def test_json_that_is_nested_huge_or_odd_is_one_sentence(nested, tmp_path, call, monkeypatch):
    path = tmp_path / "certificate.json"
    deep = "[" * nested + "]" * nested
    twice = json.dumps(proof.sealed(certificate()))
    twice = twice.replace(
        '"upper":', '"upper": 0.01, "upper":', 1
    )  # the first one is for other readers
    for text in (
        deep,
        twice,
        f'{{"format": "agnosticfair-certificate-1", "sums": {deep}}}',
        "1" * 9999,
    ):
        path.write_text(text)
        code, out, err = call("verify", path)
        assert (code, out, err.count("\n")) == (2, "", 1), err[:200]
    monkeypatch.setattr(proof, "MAX_BYTES", 10)
    code, _, err = call("verify", path)
    assert (code, "more than 10 bytes" in err) == (2, True)
