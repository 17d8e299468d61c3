"""What a fit says of itself: a limit that is not kept, the worst part, the parts that are not compared."""

from dataclasses import replace

import numpy as np
from helpers import small_table

from agnosticfair.data.table import Column
from agnosticfair.federation import fit
from agnosticfair.methods import method

ROWS = small_table(400, 5)


def test_a_limit_that_is_not_kept_is_told_with_what_was_reached():
    tiny = fit(
        {"one": ROWS},
        method("agnosticfair-named", tau=1e-12, spread=None, max_rounds=6),
        positive="yes",
    )
    part, worst = tiny.worst_parts[0]
    assert tiny.broken.startswith(
        f"tau 1e-12 is not kept: decisions differ by {worst:.3g} in {part!r}"
    )
    assert "raise tau, or least (0.005)" in tiny.broken
    lax = fit({"one": ROWS}, method("agnosticfair-named"), positive="yes")
    assert lax.broken is None
    assert f"named parts, decisions differ most in {lax.worst_parts[0][0]!r}" in lax.over_parts
    assert fit({"one": ROWS}, method("fairfl"), positive="yes").over_parts is None


def test_parts_that_lack_a_group_are_told():
    s = ROWS.sensitive_features["sex"].codes
    job = Column.of(np.where(s == 0, "only one sex", "both"))
    made = fit({"one": replace(ROWS, categorical={"job": job})}, "agnosticfair-named")
    assert "Not compared, for a group is absent there or below its floor: 'job" in made.over_parts
