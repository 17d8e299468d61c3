"""You have a model already: certify its predictions; then put the rule on its scores, without training it again."""

from adult import adult
from gallery import FOLDER, run
from sklearn.ensemble import HistGradientBoostingClassifier

X, y, sex = adult(24000)
numbers = X.select_dtypes("number")
yours = HistGradientBoostingClassifier(random_state=0).fit(numbers[:8000], y[:8000])

rows = X.assign(sex=sex, income=y, score=yours.predict_proba(numbers)[:, 1])
rows[8000:16000].to_csv(FOLDER / "scored.csv", index=False)
rows[16000:].to_csv(FOLDER / "held-out.csv", index=False)
columns = "--target income --sensitive-features sex"
run(f"audit held-out.csv {columns} --predictions score --limit 0.2 --out yours")
run(f"fit scored.csv {columns} --probability score --aware --tau 0.05")
run(f"audit held-out.csv {columns} --model model.safetensors --limit 0.2")
run("verify audit/certificate.json")
watch = "monitor model.safetensors --certificate audit/certificate.json"
print("alarm:", run(f"{watch} --rows held-out.csv") == 3)
