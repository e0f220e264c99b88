"""Made-up studies, and reports of them; by ``pytest_plugins``."""

import json

import pytest
import yaml

from fairseq_posenc.study import report, sentences
from fairseq_posenc.study.report import figures

for package in ("matplotlib", "statsmodels", "sacrebleu", "jinja2"):
    pytest.importorskip(package, reason="an extra: study")

SYSTEMS = ("stock", "rotary", "t5")
REFERENCE = [f"a <b>man</b> & {n} dogs | run in the *park* ." for n in range(12)]
SOURCE = [" ".join(["word"] * (3 + n)) for n in range(12)]
MEASURES = {
    "bleu": {"better": "higher", "label": "BLEU"},
    "perplexity": {"better": "lower", "label": "perplexity"},
    "cola_accuracy": {"better": "higher", "label": "CoLA accuracy", "unit": "%"},
}


def make(folder, seeds=(1, 2), without=(), failed=(), measures=MEASURES, change=None, **more):
    """Write a study: rotary has the best scores, stock the worst.

    *change* is given the result of each run, and may change it; *more* are keys of the plan.
    """
    folder.mkdir(exist_ok=True)
    plan = {"name": "<made & up>", "systems": dict.fromkeys(SYSTEMS), "seeds": list(seeds)}
    plan.update(measures=measures, **more)
    (folder / "plan.yaml").write_text(yaml.safe_dump(plan, sort_keys=False))
    for place, system in enumerate(("rotary", "t5", "stock")):
        for seed in seeds:
            if (system, seed) not in without:
                write_run(folder, place, system, seed, (system, seed) in failed, change)
    return folder


def write_run(folder, place, system, seed, failed, change):
    run = folder / "runs" / f"{system}-seed{seed}-01234567"
    run.mkdir(parents=True)
    result = {
        "system": system, "seed": seed, "digest": "0123456789", "status": "done",
        "flags": {"--arch": "tiny", "--position-encoding": system}, "base": ["--lr", "1"],
        "commands": [f"fairseq-train data --seed {seed} --save-dir runs/{run.name}"],
        "environment": {"torch": "2.13", "cpu": {"threads": 1}},
    }  # fmt: skip
    if failed:
        result.update(status="failed", error="out of <memory>")
        (run / "result.json").write_text(json.dumps(result))
        return
    kept = 12 - 4 * place
    lines = [line if i < kept else "<i>no" for i, line in enumerate(REFERENCE)]
    texts = {"hypotheses": lines, "references": REFERENCE, "sources": SOURCE}
    for name, text in texts.items():
        (run / f"{name}.txt").write_text("\n".join(text) + "\n")
    (run / "cola.tsv").write_text("".join(f"1\t{int(i < kept)}\n" for i in range(12)))
    noise = 0.01 * ((3 * seed + place) % 4)
    result.update(
        parameters=1000 + place, updates=10, tokens=1000, peak_memory_mb=50,
        seconds={"train": 10 + place, "decode": 1},
        scores={"bleu": 90 - place + noise, "perplexity": 5 + place + noise,
                "cola_accuracy": 100 * kept / 12},
        signatures={"bleu": "nrefs:1|case:mixed|tok:13a"},
        curve=[{"update": n, "train_loss": 9 - n, "valid_loss": 9 - n + place} for n in (1, 2, 3)],
        extrapolation={"64": 5 + place, "128": 7 + noise},
        files={**{name: f"{name}.txt" for name in texts}, "answers": {"cola": "cola.tsv"}},
    )  # fmt: skip
    if change is not None:
        change(result)
    (run / "result.json").write_text(json.dumps(result))


def written(folder):
    pages = report.write_report(folder)
    return tuple(page.read_text(encoding="utf-8") for page in pages)


def undraw(figure):
    """Stands for to_svg, which takes half a second for each figure."""
    from matplotlib import pyplot

    pyplot.close(figure)
    return '<svg width="1" height="1"></svg>'


@pytest.fixture
def undrawn(monkeypatch):
    """Reports without what takes their time: figures, and many resamples of sentences."""
    monkeypatch.setattr(figures, "to_svg", undraw)
    monkeypatch.setattr(sentences, "RESAMPLES", 50)
