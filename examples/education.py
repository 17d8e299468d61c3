"""Education: OULAD; who will pass, fair to students with a disability, on courses of a later year."""

import pandas as pd
from gallery import FILES, FOLDER, run

rows = pd.read_parquet(FILES / "oulad.parquet").sample(frac=1.0, random_state=0)
first = rows["code_presentation"].str.startswith("2013")
rows = rows.drop(columns=["code_presentation", "code_module", "gender"])
rows[first].to_csv(FOLDER / "2013.csv", index=False)
later = rows[~first]
later[:9000].to_csv(FOLDER / "2014.csv", index=False)
later[9000:].to_csv(FOLDER / "last.csv", index=False)
columns = "--target final_result --sensitive-features disability"
run(f"tune 2013.csv {columns} --learner additive --taus 0.05,0.1,0.2,0.4")
run(f"audit 2014.csv {columns} --model tune/model.safetensors --limit 0.35")
run("verify audit/certificate.json")
watch = "monitor tune/model.safetensors --certificate audit/certificate.json --page monitor.html"
print("alarm:", run(f"{watch} --rows last.csv") == 3)
