"""The card, the page, the terminal and the JSON of one run say the same number in the same words."""

import html
import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from helpers import ROLES, held

from agnosticfair.auditing.certificate import lower, upper
from agnosticfair.auditing.fits import certificates
from agnosticfair.auditing.repeats import UNTOLD
from agnosticfair.methods import method
from agnosticfair.model import load_model

METHOD = "rule"


def page_of(path):
    """All texts that a page shows, as it carries them."""
    found = re.search(r'<script[^>]*id="data"[^>]*>(.*?)</script>', Path(path).read_text(), re.S)
    return json.loads(html.unescape(found.group(1)))


def texts(value):
    if isinstance(value, dict):
        value = [*value.values()]
    if isinstance(value, list):
        return [text for inner in value for text in texts(inner)]
    return [value] if isinstance(value, str) else []


def flat(text):
    return " ".join(text.replace("\\", "").split())


@pytest.mark.parametrize("name", ["rule", "fairfl", "agnosticfair", "fl"])
def test_the_four_places_of_a_fit_say_one_sentence(call, files, name):
    code, out, _ = call("fit", *files, *ROLES, "--method", name, "--run", "run")
    assert code == 0
    content = json.loads(Path("run/certificate.json").read_text())
    said = content["sentence"]
    assert f"up to {content['worst_difference']:.4f}" in said
    assert said in flat(out)
    assert said in flat(Path("model-card.md").read_text())
    assert said in flat(html.unescape(Path("model-card.html").read_text()))
    assert call("report", "run")[0] == 0
    page = page_of(next(Path().rglob("report.html")))
    assert said in texts(page)
    (method,) = page["studies"][0]["methods"]
    assert method["certified"] is None  # nothing is, on the rows of the fit
    assert method["subgroups"]["estimable"][0]["difference"] == content["worst_difference"]
    code, out, _ = call("fit", *files, *ROLES, "--method", name, "--json")
    assert json.loads(out)["certificate"] == {"sex": said}


@pytest.mark.usefixtures("seeded_noise")
def test_the_places_of_a_private_fit_say_one_sentence(call, files):
    assert call("schema", *files, *ROLES, "--outside", "clip", "--out", "agreed.json")[0] == 0
    request = ("--method", "fairfl", "--schema", "agreed.json", "--epsilon", "200")
    code, out, err = call("fit", *files, *ROLES, *request)
    assert code == 0, err
    fitted = SimpleNamespace(model=load_model("model.safetensors"), method=method("fairfl"))
    (made,) = certificates(fitted, {})[0].values()
    said = str(made)
    assert f"up to {made.worst_difference:.4f}" in said
    assert "under noise, at most" in said
    assert said in flat(out)
    assert said in flat(Path("model-card.md").read_text())
    assert said in flat(html.unescape(Path("model-card.html").read_text()))
    code, out, _ = call("fit", *files, *ROLES, *request, "--force", "--json")  # the same answers
    assert json.loads(out)["certificate"] == {"sex": said}


def test_the_four_places_of_an_audit_say_one_sentence(call, files):
    assert call("fit", files[0], *ROLES, "--method", METHOD)[0] == 0
    send = ("audit", files[1], *ROLES, "--model", "model.safetensors", "--precision", 0.6)
    code, out, _ = call(*send)
    assert code == 0
    content = json.loads(Path("audit/certificate.json").read_text())
    assert content["sentence"] in flat(out)
    assert json.loads(call(*send, "--json")[1])["sentence"] == content["sentence"]
    assert call("report", "audit")[0] == 0
    page = next(Path().rglob("report.html"))
    assert content["sentence"] in texts(page_of(page))
    (study,) = page_of(page)["studies"]
    tiles = {label: (value, about) for label, value, about in study["glance"]["tiles"]}
    overall = content["subgroups"][0]
    worst = f"{content['worst_difference']:.4f}"
    assert (tiles["Worst subgroup"][0], tiles["Overall"][0]) == (
        worst,
        f"{content['difference']:.4f}",
    )
    assert f"at most {upper(overall['high'])}" in tiles["Overall"][1]
    for place in (content["sentence"], study["glance"]["answer"], flat(out)):
        assert f"at most {upper(content['upper'])}" in place
        assert worst in place
    assert f"at least {lower(overall['ratio_low'])}" in tiles["Four-fifths rule"][1]
    assert f"at least {lower(overall['ratio_low'])} overall" in content["sentence"]
    assert call("verify", "audit/certificate.json")[0] == 0


def test_an_audit_whose_limit_is_not_certified_ends_with_its_own_code(call, files):
    assert call("fit", files[0], *ROLES, "--method", "fl")[0] == 0
    send = ("audit", files[1], *ROLES, "--model", "model.safetensors", "--precision", 0.6)
    assert call(*send, "--limit", 0.99)[0] == 0
    assert call(*send, "--limit", 0.001)[0] == 3
    assert json.loads(Path("audit/certificate.json").read_text())["request"]["limit"] == 0.001


def test_a_subgroup_of_few_rows_that_surely_breaks_the_limit_ends_with_the_code_of_a_broken_one(
    call, monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    rng, lines = np.random.default_rng(3), ["job,sex,outcome"]
    for _ in range(3000):
        job, sex = (
            rng.choice(["clerk", "nurse", "smith"], p=[0.48, 0.48, 0.04]),
            rng.choice(["F", "M"]),
        )
        rate = 0.4 if job != "smith" else 0.95 if sex == "M" else 0.01
        lines.append(f"{job},{sex},{'yes' if rng.random() < rate else 'no'}")
    Path("few.csv").write_text(
        "\n".join([lines[0] + ",decided", *(f"{x},{x.split(',')[-1]}" for x in lines[1:])])
    )
    send = (
        "--target",
        "outcome",
        "--sensitive-features",
        "sex",
        "--predictions",
        "decided",
        "--limit",
        0.2,
    )
    code, out, _ = call("audit", "few.csv", *send)
    content = json.loads(Path("audit/certificate.json").read_text())
    (smith,) = [one for one in content["subgroups"] if one["name"] == "job = smith"]
    assert (smith["estimable"], content["upper"] < 0.2, smith["low"] > 0.2) == (False, True, True)
    assert code == 3
    assert f"where job = smith, in the population at least {lower(smith['low'])}" in flat(out)


def test_the_largest_difference_is_drawn_whatever_its_bound():
    from agnosticfair import audit
    from agnosticfair.report.certificate import subgroups_of

    table, decided = held(6000)
    made = audit(decided, table, sensitive_features="sex", precision=0.5)
    some = [replace(p, high=1 - p.difference / 2) for p in made.subgroups]
    turned = replace(made, subgroups=tuple(some))  # the worst has the lowest bound
    drawn = subgroups_of(turned)["estimable"]
    assert len(turned.worst_first) > len(drawn)
    assert max(p["difference"] for p in drawn) == made.worst_difference
    assert len(turned.listed(3)) == 3


def test_a_certificate_of_a_model_that_came_alone_says_so_and_is_consistent(call, files):
    assert call("fit", files[0], *ROLES, "--method", "fl")[0] == 0
    Path("model.trained-on.json").unlink()
    send = ("audit", files[1], *ROLES, "--model", "model.safetensors", "--precision", 0.6)
    code, out, _ = call(*send)
    assert (code, flat(UNTOLD) in flat(out)) == (0, True)
    assert call("verify", "audit/certificate.json")[0] == 0


def test_a_limit_that_is_kept_shows_as_kept_and_one_that_is_not_ends_with_its_own_code(call, files):
    send = ("fit", *files, *ROLES, "--precision", 0.9)
    code, _, _ = call(*send, "--limit", 0.97, "--run", "run")
    card = Path("model-card.md").read_text()
    assert (code, "Kept: " in card, "Not known" in card) == (0, True, False)
    assert "most 0.9700," in card  # not the smaller bound
    first = card[: card.index("## ")] if "## " in card else card
    assert first.count("certified at most") == 1
    content = json.loads(Path("model-sex-certificate.json").read_text())
    assert content["upper"] == 0.97
    assert call("verify", "model-sex-certificate.json")[0] == 0
    assert call("report", "run")[0] == 0
    (study,) = page_of(next(Path().rglob("report.html")))["studies"]
    assert (study["limit"], study["rows"], study["rows_are"]) == (
        0.97,
        content["n"],
        "rows held out",
    )
    assert study["glance"]["answer"] in flat(card)
    assert "certified at most" not in study["glance"]["tiles"][1][2]  # nobody claims it
    assert call(*send, "--limit", 0.01)[0] == 3
    assert Path("model-card.md").exists()
