"""Credit: decide whom to call in 2009 from calls of 2008, fair between the young, the middle-aged and the old."""

import pandas as pd
from gallery import FILES, FOLDER, run

rows = pd.read_parquet(FILES / "bank.parquet")
rows["age_group"] = pd.cut(rows["age"], [0, 30, 60, 120], labels=["to 30", "31 to 60", "over 60"])
rows = rows.drop(columns=["age", "day", "month"]).sample(frac=1.0, random_state=0)
quarter = rows["quarter"].astype(str)
early, late = quarter < "2009", quarter >= "2009"
rows = rows.drop(columns="quarter")
rows[early][:12000].to_csv(FOLDER / "branch-a.csv", index=False)
rows[early][12000:18000].to_csv(FOLDER / "branch-b.csv", index=False)
rows[early][18000:].to_csv(FOLDER / "held-out.csv", index=False)
rows[late].to_csv(FOLDER / "later.csv", index=False)
columns = "--target y --sensitive-features age_group"
run(f"fit branch-a.csv branch-b.csv {columns} --costs balanced --tau 0.1 --learner additive")
run(f"audit held-out.csv {columns} --model model.safetensors --limit 0.3")
run("verify audit/certificate.json")
watch = "monitor model.safetensors --certificate audit/certificate.json --page monitor.html"
print("alarm after the crisis:", run(f"{watch} --rows later.csv") == 3)
