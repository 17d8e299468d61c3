"""Health: two hospitals refer patients; missed cases should be as rare in one group as in another."""

import numpy as np
import pandas as pd
from gallery import FOLDER, run


def patients(n, seed, hospital):
    """Patients of one hospital; a laboratory value is missing for some, and more often in one group."""
    rng = np.random.default_rng(seed)
    cover = rng.choice(["public", "private"], n, p=[0.6, 0.4])
    age = rng.integers(18, 95, n)
    pressure = 110 + 0.4 * age + 12 * rng.normal(size=n)
    marker = rng.gamma(2.0, 1.0, n) + 0.02 * age
    ill = 0.03 * age + 0.6 * marker + 0.02 * pressure + rng.normal(size=n) > 7.6
    visits = rng.poisson(2 + 2 * (cover == "private") + 2 * ill)
    marker[rng.random(n) < np.where(cover == "public", 0.25, 0.05)] = np.nan
    smoker = rng.choice(["never", "former", "current"], n)
    table = {"age": age, "pressure": pressure.round(), "marker": marker.round(2), "visits": visits}
    return pd.DataFrame(
        table | {"smoker": smoker, "cover": cover, "ill": np.where(ill, "yes", "no")}
    )


for seed, name in enumerate(("coast", "hills")):
    patients(8000, seed, name).to_csv(FOLDER / f"{name}.csv", index=False)
patients(8000, 7, "coast").to_csv(FOLDER / "new.csv", index=False)
patients(8000, 8, "coast").to_csv(FOLDER / "month.csv", index=False)
columns = "--target ill --sensitive-features cover --metric equal_opportunity"
# a missed case is as bad as three false alarms
run(f"fit coast.csv hills.csv {columns} --tau 0.05 --costs 1,3 --learner additive")
run(f"audit new.csv {columns} --model model.safetensors --limit 0.3")
run("verify audit/certificate.json")
watch = "monitor model.safetensors --certificate audit/certificate.json --page monitor.html"
print("alarm:", run(f"{watch} --rows month.csv --target ill") == 3)
