"""Hiring: applications to three offices in one raw CSV; who is invited, and did it change after a campaign?"""

import numpy as np
import pandas as pd
from gallery import FOLDER, run


def applications(n, seed, gap=0.15):
    """Applications as they are recorded: an identifier, a date, gaps, and women with shorter records."""
    rng = np.random.default_rng(seed)
    sex = rng.choice(["F", "M"], n)
    years = rng.gamma(3.0, 2.5, n) + (0.6 + 6 * gap) * (sex == "M")
    rows = pd.DataFrame(
        {
            "application": [f"A{seed}-{k}" for k in range(n)],
            "received": pd.Timestamp("2025-01-01") + pd.to_timedelta(rng.integers(0, 365, n), "D"),
            "office": rng.choice(["Oslo", "Porto", "Riga"], n, p=[0.5, 0.3, 0.2]),
            "degree": rng.choice(["none", "bachelor", "master"], n, p=[0.4, 0.4, 0.2]),
            "years": years.round(1),
            "test": (60 + 10 * rng.normal(size=n)).round(),
            "referred": rng.random(n) < 0.2 + gap * (sex == "M"),
            "sex": sex,
        }
    )
    merit = 0.2 * rows["years"] + 0.05 * rows["test"] + (rows["degree"] == "master")
    merit += 1.0 * rows["referred"] + rng.normal(size=n)
    rows["invited"] = np.where(merit > 5.6, "yes", "no")
    rows.loc[rng.random(n) < 0.05, "test"] = np.nan
    return rows


applications(9000, 1).to_csv(FOLDER / "applications.csv", index=False)
applications(9000, 2).to_csv(FOLDER / "next-year.csv", index=False)
applications(9000, 3, gap=0.75).to_csv(FOLDER / "campaign.csv", index=False)
columns = "--target invited --sensitive-features sex"
run(f"fit applications.csv {columns} --client-column office --tau 0.05 --learner additive")
model = "--model model.safetensors"
run(f"audit next-year.csv {columns} {model} --limit 0.2")
run("verify audit/certificate.json")
watch = "monitor model.safetensors --certificate audit/certificate.json --page monitor.html"
print("alarm after the campaign:", run(f"{watch} --rows campaign.csv") == 3)
