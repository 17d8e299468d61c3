"""A monitor: counts that add up, statements that hold however often one looks, and refusals in a sentence."""

import json
from dataclasses import replace

import numpy as np
import pytest
from helpers import certificate_on, small_table

from agnosticfair.data.table import Column
from agnosticfair.errors import DataError, ModelError, SettingsError
from agnosticfair.federation import fit
from agnosticfair.mathematics.subgroups import members
from agnosticfair.monitoring.baseline import baseline_of, nearest, reachable, shares_within
from agnosticfair.monitoring.monitor import Monitor, described
from agnosticfair.monitoring.verdict import from_bytes, subgroup_differences

ROWS = small_table(6000, seed=1)
MODEL = fit({"a": small_table(1500, seed=2)}, "fl", positive="yes").model
CERTIFICATE = certificate_on(MODEL, small_table(4000, seed=3))
BASELINE = baseline_of(CERTIFICATE, MODEL, limit=0.5)


def batches(table, size=500):
    return [table.take(np.arange(k, min(k + size, len(table)))) for k in range(0, len(table), size)]


def watched(table, **settings):
    monitor = Monitor(MODEL, settings.pop("baseline", BASELINE), **settings)
    for batch in batches(table, 1000):
        verdict = monitor.update(batch)
    return monitor, verdict


def test_counts_are_those_of_the_rows():
    from agnosticfair.data.axes import codes_of

    monitor, _ = watched(ROWS)
    codes, decided = codes_of(ROWS, BASELINE.axes), MODEL.predict(ROWS)
    s, y = ROWS.sensitive_features["sex"].codes, ROWS.labels("yes")
    for subgroup, counts in zip(BASELINE.subgroups, monitor.state.counts, strict=True):
        inside = members(codes, subgroup)
        for group in (0, 1):
            for label in (0, 1):
                for decision in (0, 1):
                    own = inside & (s == group) & (y == label) & (decided == decision)
                    assert counts[group, 1 + label, decision] == own.sum()


def test_states_of_sites_add_up_to_the_state_of_all_rows():
    whole, verdict = watched(ROWS)
    (north, _), (south, _) = (watched(ROWS.take(np.arange(k, 6000, 2))) for k in (0, 1))
    both = north.state + south.state
    np.testing.assert_array_equal(both.counts, whole.state.counts)
    np.testing.assert_array_equal(both.values, whole.state.values)
    north.state = both
    assert north.verdict().subgroups == verdict.subgroups
    with pytest.raises(ModelError, match="both states"):
        both + south.state


def test_the_intervals_hold_the_measured_difference_and_narrow():
    monitor, verdict = watched(ROWS)
    for subgroup in (verdict.overall, *verdict.subgroups):
        assert subgroup.low <= subgroup.difference <= subgroup.high
    first, last = monitor.state.timeline[0], monitor.state.timeline[-1]
    assert last["high"] - last["low"] < first["high"] - first["low"]


def test_rows_like_the_baselines_are_inside_and_a_broken_limit_is_found():
    _, calm = watched(ROWS)
    assert (calm.where, calm.changed, calm.alarm) == ("inside", False, False)
    strict = baseline_of(CERTIFICATE, MODEL, limit=0.01)
    sex, decided = ROWS.sensitive_features["sex"], MODEL.predict(ROWS)
    apart = replace(sex, codes=np.where(np.arange(6000) % 4 == 0, decided, sex.codes))
    monitor, broken = watched(replace(ROWS, sensitive_features={"sex": apart}), baseline=strict)
    assert broken.decisions == "broken"
    assert 0 < broken.since["broken"] < 6000
    assert f"since row {broken.since['broken']:,}" in broken.sentence
    delta = 0.025 / len(strict.subgroups)
    differences = subgroup_differences(
        strict.metric, monitor.state.counts, delta, strict.comparable
    )
    assert differences.low.max() > 0.01


def test_another_mix_is_seen_and_told():
    old = ROWS.take(ROWS.numeric["age"] > 0.5)
    _, verdict = watched(old)
    assert verdict.changed
    assert "age" in verdict.because
    assert any("target_weights" in sentence for sentence in verdict.advice)


def test_values_never_seen_are_named_and_lie_outside():
    job = ROWS.categorical["job"]
    strange = replace(
        ROWS,
        categorical={
            "job": Column(np.where(job.codes == 0, 3, job.codes), (*job.categories, "robot"))
        },
    )
    _, verdict = watched(strange)
    assert verdict.where == "outside"
    assert verdict.strange == {"job": ("robot",)}
    assert verdict.undecided == (job.codes == 0).sum()
    assert "robot" in described(verdict)


def test_the_distance_is_zero_for_mixtures_in_the_set_and_not_beyond():
    size = len(BASELINE.counts)
    shares = np.r_[BASELINE.counts[0] / BASELINE.counts[0, 0], np.zeros(len(BASELINE.axes))]
    assert nearest(BASELINE, shares)[0] < 1e-9  # one subgroup alone, weighed by its bound at most
    unheard = shares.copy()
    unheard[:size] *= 0.5
    unheard[size:] = 0.5
    assert nearest(BASELINE, unheard)[0] > 0.2


def test_without_groups_the_mix_is_still_watched():
    bare = replace(ROWS, sensitive_features={}, target=None)
    _, verdict = watched(bare)
    assert (verdict.where, verdict.grouped, verdict.decisions) == ("inside", 0, "not yet known")
    assert "6,000 rows" in verdict.advice[-1]


def test_what_is_not_measured_is_not_told_as_zero():
    from agnosticfair.report.page import monitor_data

    monitor, verdict = watched(replace(ROWS, sensitive_features={}))
    assert (verdict.overall.rows, verdict.overall.difference) == (0, None)
    assert [rate.rate for rate in verdict.overall.rates] == [None, None]
    told = monitor_data(monitor, verdict)
    assert json.loads(json.dumps(told, allow_nan=False))["timeline"][-1]["difference"] is None
    assert "its groups are not known" in " ".join(told["texts"])


def test_its_page_is_drawn_and_accessible(accessible):
    from agnosticfair.report.page import monitor_data, monitor_page

    accessible(monitor_page(monitor_data(*watched(ROWS))))


def test_labels_that_come_late_are_added_once():
    baseline = replace(BASELINE, metric="equal_opportunity")
    monitor = Monitor(MODEL, baseline)
    first = ROWS.take(np.arange(800))
    monitor.update(replace(first, target=None))
    assert monitor.verdict().overall.low == 0
    monitor.update(first)
    at_once = Monitor(MODEL, baseline)
    at_once.update(first)
    np.testing.assert_array_equal(monitor.state.counts, at_once.state.counts)
    assert monitor.state.rows == 800
    with pytest.raises(DataError, match="very content"):
        monitor.update(first)


def test_a_state_survives_a_kill_to_the_last_batch_that_was_acknowledged(tmp_path):
    path = tmp_path / "state.json"
    monitor = Monitor(MODEL, BASELINE, state=path)
    for batch in batches(ROWS)[:3]:
        monitor.update(batch)
        again = Monitor(MODEL, BASELINE, state=path)
        np.testing.assert_array_equal(again.state.counts, monitor.state.counts)
        assert again.verdict().subgroups == monitor.verdict().subgroups
        with pytest.raises(DataError, match="very content"):
            again.update(batch)
    assert path.stat().st_size < 1 << 20


def test_every_flipped_byte_of_a_state_is_found(tmp_path):
    content = bytearray(watched(ROWS)[0].state.to_bytes())
    rng = np.random.default_rng(0)
    for place in rng.integers(0, len(content) - 1, 60):
        changed = bytearray(content)
        changed[place] ^= 1 + int(rng.integers(0, 127))
        with pytest.raises(ModelError, match="damaged"):
            from_bytes(bytes(changed), "the file")


@pytest.mark.parametrize(
    ("act", "error", "said"),
    [
        (lambda m: m.update(ROWS.take(np.arange(0))), DataError, "no rows"),
        (
            lambda m: [
                m.update(ROWS.take(rows)) for rows in (np.arange(500), np.arange(500)[::-1])
            ],
            DataError,
            "very content",
        ),
        (
            lambda m: [m.update(ROWS.take(np.arange(n))) for n in (500, 499)],
            DataError,
            "rows in common",
        ),
        (
            lambda m: [m.update(ROWS.take(np.arange(a, a + 500))) for a in (0, 100)],
            DataError,
            "rows in common",
        ),
        (lambda m: m.update(replace(ROWS, categorical={})), DataError, "job"),
        (lambda m: Monitor(MODEL, replace(BASELINE, model="0")), ModelError, "belong together"),
        (lambda m: Monitor(MODEL, BASELINE, confidence=1.0), SettingsError, "confidence is 1"),
        (lambda m: baseline_of({"sums": {"x": 1}, "upper": 0.1}), ModelError, "damaged"),
        (lambda m: baseline_of(CERTIFICATE, MODEL, limit=0), SettingsError, "limit is 0"),
    ],
)
def test_what_cannot_be_watched_is_refused(act, error, said):
    with pytest.raises(error, match=said):
        act(Monitor(MODEL, BASELINE))


def test_a_certificate_from_its_file_is_the_same_baseline():
    back = baseline_of(json.loads(json.dumps(CERTIFICATE.to_json())), MODEL, limit=0.5)
    assert back.id == BASELINE.id
    assert back.names[0] == "overall"
    assert (
        baseline_of(CERTIFICATE, MODEL, limit=0.9).id == back.id
    )  # a limit is no part of the counts


def test_predicting_counts():
    monitor = Monitor(MODEL, BASELINE)
    np.testing.assert_array_equal(monitor.predict(ROWS), MODEL.predict(ROWS))
    assert monitor.state.rows == len(ROWS)


@pytest.mark.slow
def test_streams_without_change_raise_no_alarm():
    rng, alarms, pool = np.random.default_rng(0), 0, small_table(20000, seed=9)
    baseline = baseline_of(certificate_on(MODEL, pool, 0.1), MODEL, limit=0.62)
    for _ in range(15):
        monitor = Monitor(MODEL, baseline)
        drawn = pool.take(rng.integers(0, len(pool), 1500))
        alarms += any(monitor.update(b, again=True).alarm for b in batches(drawn, 250))
    assert alarms <= 2


def test_a_certificate_is_a_baseline():
    from agnosticfair import audit

    table = small_table(4000, seed=3)
    certificate = audit(MODEL, table, sensitive_features="sex", subgroups=["age", "job"])
    monitor = Monitor(MODEL, certificate)
    assert max(monitor.baseline.limits) == certificate.upper
    able = [subgroup for subgroup in certificate.subgroups if subgroup.estimable]
    assert monitor.baseline.limits == tuple(subgroup.high for subgroup in able)
    kept = replace(certificate, upper=0.9)  # of a fit's limit, which is all that is claimed
    assert {*Monitor(MODEL, kept).baseline.limits} == {0.9}
    assert not monitor.update(ROWS).alarm
    other = fit({"a": small_table(500, seed=5)}, "fl", positive="yes").model
    with pytest.raises(ModelError, match="belong together"):
        Monitor(other, certificate.to_json())


def test_only_what_the_certificate_bounds_is_held_to_its_limit():
    from agnosticfair import audit

    certificate = audit(
        MODEL, small_table(1500, seed=3), sensitive_features="sex", subgroups=["age", "job"]
    )
    able = {subgroup.name for subgroup in certificate.subgroups if subgroup.estimable}
    assert 0 < len(able) < len(certificate.subgroups)
    watch = Monitor(MODEL, certificate.to_json())
    assert {*watch.baseline.names} == able
    rows = dict(zip(watch.baseline.names, watch.baseline.subgroup_rows, strict=True))
    assert rows == {
        subgroup.name: subgroup.rows for subgroup in certificate.subgroups if subgroup.name in able
    }
    told = certificate.to_json()
    told["subgroups"][0]["rates"][0]["compared"] = False
    alone = Monitor(MODEL, told).update(ROWS).overall
    assert (alone.difference, alone.low, alone.verdict) == (0.0, 0.0, "kept")
    assert [rate.compared for rate in alone.rates] == [False, True]


def test_every_groups_rate_is_told_with_its_interval():
    _, verdict = watched(ROWS)
    s, decided = ROWS.sensitive_features["sex"].codes, MODEL.predict(ROWS)
    for g, rate in enumerate(verdict.overall.rates):
        assert (rate.group, rate.rows) == (MODEL.groups[g], (s == g).sum())
        assert rate.rate == decided[s == g].mean()
        assert rate.low < rate.rate < rate.high
    high, low = sorted((rate.rate for rate in verdict.overall.rates), reverse=True)
    assert verdict.overall.difference == high - low


def test_a_batch_is_told_of_by_itself_as_well():
    calm, old = ROWS.take(np.arange(3000)), ROWS.take(ROWS.numeric["age"] > 0.7)
    monitor, _ = watched(calm)
    verdict = monitor.update(old)
    alone = Monitor(MODEL, BASELINE).update(old)
    assert verdict.batch.rows == len(old)
    assert verdict.batch.overall == alone.overall
    assert (verdict.batch.where, verdict.batch.distance) == (alone.where, alone.distance)
    assert verdict.overall.rows == 3000 + len(old)


def test_the_nearest_mixture_has_the_mix_and_is_told_by_its_heaviest_values():
    monitor, verdict = watched(ROWS.take(ROWS.numeric["age"] > 0.7))
    shares = monitor.state.values / monitor.state.rows
    distance, alpha = nearest(BASELINE, shares)
    mix = BASELINE.counts @ alpha / BASELINE.n
    assert np.abs(mix - shares[: len(mix)]).max() <= distance + 1e-9
    assert ((alpha >= 0) & (alpha <= BASELINE.bound + 1e-9)).all()
    assert 0 < sum(verdict.nearest.values()) <= 1 + 1e-9
    assert [*verdict.nearest.values()] == sorted(verdict.nearest.values(), reverse=True)


def test_a_sample_with_groups_judges_decisions_and_leaves_the_mix():
    monitor, bare = watched(replace(ROWS, sensitive_features={}, target=None))
    sample = ROWS.take(np.arange(0, 6000, 6))
    verdict = monitor.update(sample, sample=True)
    assert (verdict.rows, verdict.grouped, bare.grouped) == (6000, 1000, 0)
    direct = Monitor(MODEL, BASELINE).update(sample)
    assert verdict.overall.low == direct.overall.low  # the width of a thousand rows
    assert (verdict.distance, verdict.where) == (bare.distance, bare.where)
    with pytest.raises(DataError, match="very content"):
        monitor.update(sample, sample=True)


def test_a_state_stays_small_however_many_batches(tmp_path):
    from agnosticfair.monitoring.verdict import MAX_BATCHES, latest

    monitor, _ = watched(ROWS)
    many = latest({f"{k:016x}": False for k in range(3 * MAX_BATCHES)})
    assert [*many] == [f"{k:016x}" for k in range(2 * MAX_BATCHES, 3 * MAX_BATCHES)]
    assert len(replace(monitor.state, batches=many).to_bytes()) < 1 << 20


def test_two_processes_may_count_into_one_state(tmp_path):
    path = tmp_path / "s.json"
    one, other = (Monitor(MODEL, BASELINE, state=path) for _ in range(2))
    first, second, *_ = batches(ROWS)
    one.update(first)
    assert other.update(second).rows == 1000
    with pytest.raises(DataError, match="very content"):
        one.update(second)
    assert Monitor(MODEL, BASELINE, state=path).state.rows == 1000


def test_a_batch_that_could_not_be_written_is_not_counted(tmp_path):
    monitor = Monitor(MODEL, BASELINE, state=tmp_path / "absent" / "state.json")
    with pytest.raises(ModelError, match="not counted"):
        monitor.update(ROWS)
    assert monitor.state.rows == 0


def test_a_clock_that_jumps_locks_nobody_out():
    monitor = Monitor(MODEL, BASELINE)
    for batch, when in zip(batches(ROWS), (1e9, 4e9, 1e9 + 1), strict=False):  # a day in 2096
        verdict = monitor.update(batch, when=when)
    assert verdict.rows == 1500
    assert [point["time"] for point in monitor.state.timeline] == [1e9, 4e9, 1e9 + 1]


@pytest.mark.parametrize("when", [-1.0, 1e12, float("inf"), float("nan")])
def test_a_time_that_no_page_could_show_is_refused(when):
    monitor = Monitor(MODEL, BASELINE)
    with pytest.raises(SettingsError, match="no time"):
        monitor.update(ROWS, when=when)
    assert monitor.state.rows == 0


@pytest.mark.parametrize(
    "rows", ["part", "turned", "less one", "exports that grow", "others between"]
)
def test_rows_that_were_counted_are_known_again(rows):
    monitor, order = Monitor(MODEL, BASELINE), np.random.default_rng(0).permutation(1000)
    monitor.update(ROWS.take(np.arange(1000)))
    places = {"part": np.arange(350), "turned": order, "less one": order[1:]}
    places |= {"exports that grow": np.arange(5000), "others between": np.r_[order, 3000:3500]}
    with pytest.raises(DataError, match="again"):
        monitor.update(ROWS.take(places[rows]))
    monitor.update(ROWS.take(np.arange(1000, 1700)))
    assert monitor.state.rows == 1700


def test_batches_of_people_who_are_alike_by_chance_are_counted():
    few = replace(ROWS, numeric={name: np.round(v) for name, v in ROWS.numeric.items()})
    monitor = Monitor(MODEL, BASELINE)
    for batch in batches(few, 300)[:6]:
        monitor.update(batch)
    assert monitor.state.rows == 1800


def test_every_subgroup_is_watched_against_its_own_bound():
    from agnosticfair import audit

    rng = np.random.default_rng(5)
    table = small_table(12_000, seed=5)
    s, job = table.column("sex").codes, table.column("job").values()
    decided = (rng.random(12_000) < 0.3 + s * 0.4 * (job == "a")).astype(int)
    certificate = audit(decided, table, sensitive_features="sex", subgroups=("job",))
    high = {subgroup.name: subgroup.high for subgroup in certificate.subgroups}
    assert high["job = b"] < 0.12 < 0.4 < high["job = a"]
    monitor = Monitor(None, certificate)
    for k in range(12):
        rows = small_table(1000, seed=100 + k)
        t, where = rows.column("sex").codes, rows.column("job").values()
        rates = 0.3 + t * np.select([where == "a", where == "b"], [0.4, 0.3], 0.0)
        groups = {"sensitive_features": rows.column("sex")}
        rows = replace(rows, target=None, sensitive_features=groups)
        verdict = monitor.update(rows, decisions=(rng.random(1000) < rates).astype(int))
    assert verdict.decisions == "broken"
    assert "'job = b'" in verdict.sentence
    broken = [subgroup.name for subgroup in verdict.all_subgroups if subgroup.verdict == "broken"]
    assert "job = a" not in broken


KILLED = """
import sys
import numpy as np
from helpers import certificate_on, small_table
from agnosticfair.monitoring.monitor import Monitor
from agnosticfair.model import load_model
import json
folder = sys.argv[1]
model = load_model(f"{folder}/model")
monitor = Monitor(model, json.load(open(f"{folder}/baseline")), limit=0.5, state=f"{folder}/state")
rows = small_table(6000, seed=1)
for k in range(1000):
    monitor.update(rows.take(np.arange(k, k + 40)), again=True)
    print(monitor.state.rows, flush=True)
"""


def test_a_kill_at_any_moment_loses_no_batch_that_was_acknowledged(tmp_path):
    import subprocess
    import sys
    import time
    from pathlib import Path

    MODEL.save(tmp_path / "model")
    (tmp_path / "baseline").write_text(json.dumps(CERTIFICATE.to_json()))
    child = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[1],
    )
    for _ in range(3):
        child.stdout.readline()
    time.sleep(0.05)
    child.kill()
    told = child.communicate()[0].split("\n")[:-1]
    acknowledged = 40 * (3 + len(told))
    kept = Monitor(MODEL, BASELINE, state=tmp_path / "state").state
    assert kept.rows in (acknowledged, acknowledged + 40)  # written, and killed before it was said
    assert kept.counts[0].sum() == kept.rows


def test_shares_within_a_subgroup_lie_between_their_bounds():
    from agnosticfair.data.axes import codes_of

    codes = codes_of(small_table(4000, seed=3), BASELINE.axes)
    subgroups = [*BASELINE.subgroups]
    minimum, maximum = shares_within(BASELINE, subgroups, 0.05)
    starts = np.cumsum([0, *(len(axis.values) for axis in BASELINE.axes)])
    for p, subgroup in enumerate(subgroups):
        there = codes[members(codes, subgroup)]
        for a, axis in enumerate(BASELINE.axes):
            for v in range(len(axis.values)):
                share = (there[:, a] == v).mean()
                assert minimum[p, starts[a] + v] <= share <= maximum[p, starts[a] + v]
    single = next(k for k, subgroup in enumerate(subgroups) if len(subgroup) == 1)
    pair = next(k for k, subgroup in enumerate(subgroups) if len(subgroup) == 2)
    assert (maximum - minimum)[single].max() < (maximum - minimum)[pair].max()


@pytest.mark.parametrize("depth", [1, 2])
def test_rows_of_one_subgroup_alone_are_never_outside(depth):
    from agnosticfair.data.axes import codes_of

    pool = small_table(20000, seed=9)
    codes = codes_of(pool, BASELINE.axes)
    for subgroup in [subgroup for subgroup in BASELINE.subgroups if len(subgroup) == depth][:4]:
        drawn = pool.take(members(codes, subgroup))
        verdict = Monitor(MODEL, BASELINE).update(drawn)
        assert verdict.where != "outside", subgroup
        if depth == 1:
            assert (verdict.where, verdict.changed) == ("inside", True)


def test_the_program_of_what_is_reachable_has_a_goal(monkeypatch):
    """Without one HiGHS went round for ever on Adult's rows of all but the private sector."""
    from scipy import optimize

    request, solve = [], optimize.linprog
    monkeypatch.setattr(optimize, "linprog", lambda c, **k: request.append(c) or solve(c, **k))
    low = np.zeros(len(BASELINE.values))
    assert reachable(BASELINE, low, np.ones(len(low)), 0.05)
    assert [np.count_nonzero(c) for c in request] == [1]


def test_no_mixture_reaches_two_values_that_exclude_each_other():
    low = np.zeros(len(BASELINE.values))
    assert reachable(BASELINE, low, np.ones(len(low)), 0.05)
    low[-1] = 0.5  # half of the rows have a value never seen
    assert not reachable(BASELINE, low, np.ones(len(low)), 0.05)


@pytest.mark.slow
def test_inside_is_right_for_streams_from_reweightings_in_the_set():
    from agnosticfair import audit
    from agnosticfair.data.axes import codes_of

    rng, pool, inside, over = np.random.default_rng(0), small_table(20000, seed=9), 0, 0
    table = small_table(6000, seed=3)
    certificate = audit(
        MODEL, table, sensitive_features="sex", subgroups=["age", "job"], mixtures=True
    )
    subgroups = Monitor(MODEL, certificate).baseline.subgroups[1:]
    codes = codes_of(pool, Monitor(MODEL, certificate).baseline.axes)
    for _ in range(20):
        chosen = [
            subgroups[k] for k in rng.choice(len(subgroups), int(rng.integers(1, 4)), replace=False)
        ]
        mass = [members(codes, p) / members(codes, p).mean() for p in chosen]
        theta = rng.dirichlet(np.ones(len(chosen))) @ np.array(mass)
        drawn = pool.take(rng.choice(len(pool), 3000, p=theta / theta.sum()))
        verdict = Monitor(MODEL, certificate).update(drawn)
        assert verdict.where != "outside"
        inside += verdict.where == "inside"
        over += verdict.where == "inside" and verdict.overall.difference > certificate.upper
    assert inside >= 8
    assert over <= 0.05 * inside
