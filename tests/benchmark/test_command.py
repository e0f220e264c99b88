"""fairseq-posenc benchmark: what it runs, that its figures are consistent, and its mistakes."""

import csv
import json
import random
import shlex
import statistics
import threading
from pathlib import Path

import pytest
import torch
from support.benchmark_runs import SMALL, completed, settings, subject
from support.helpers import EVERY_ENCODING, causal_only, encoding_of_sides
from support.lists import rows_of

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.benchmark import measure
from fairseq_posenc.benchmark.models import LanguageModelSubject
from fairseq_posenc.cli import main
from fairseq_posenc.encodings import ENCODINGS


@pytest.mark.parametrize("encoding", EVERY_ENCODING)
def test_every_encoding_is_trained_and_translates_to_the_full_length(encoding):
    made = subject(" ".join(["posenc_transformer", *encoding_of_sides(encoding)]))
    made.training()()
    assert all(p.grad is not None for p in made.model.parameters() if p.requires_grad)
    hypotheses = made.generation()()
    assert [len(beam) for beam in hypotheses] == [4, 4, 4]
    assert {len(hypothesis["tokens"]) for beam in hypotheses for hypothesis in beam} == {7 + 1}


def test_a_step_does_not_add_to_the_gradients_of_the_one_before():
    made = subject("transformer --dropout 0")
    step = made.training()
    step()
    weight = made.model.encoder.layers[0].fc1.weight
    before = weight.grad.clone()
    step()
    assert before.abs().sum() > 0
    assert torch.allclose(weight.grad, before)


def test_ratios_are_of_the_same_round():
    draw = random.Random(1)
    weather = [draw.uniform(1, 50) for _ in range(9)]  # a machine with other work to do
    factors = [2 + i / 10 for i in range(9)]
    times = [weather, [w * f for w, f in zip(weather, factors)]]
    base, other = measure.compare(times)
    assert base.pop("median_ms") == statistics.median(weather)
    assert set(base.values()) == {1}
    assert other["median_ms"] == sorted(times[1])[4]
    assert other["ratio"] == pytest.approx(2.4)
    assert (other["ratio_q1"], other["ratio_q3"]) == pytest.approx((2.2, 2.6))


def test_stock_against_stock_is_even_and_written_down(tmp_path, capsys):
    files = ["--csv", str(tmp_path / "t.csv"), "--json", str(tmp_path / "t.json")]
    archs = ["--archs", "transformer", "transformer", "transformer --encoder-layers 8"]
    main(["benchmark", *SMALL, "--skip-memory", "--repeat", "7", *files, *archs])
    printed = capsys.readouterr().out
    written = json.loads((tmp_path / "t.json").read_text())
    rows = written["rows"]
    assert len(rows) == 2 * 2 * 3  # jobs, clocks, models
    assert {(row["job"], row["clock"]) for row in rows} == {
        (job, clock) for job in ("training", "generation") for clock in ("processor", "wall")
    }
    for row in rows:
        assert row["median_ms"] > 0
        assert 0 < row["ratio_q1"] <= row["ratio"] <= row["ratio_q3"]
        assert f"{row['median_ms']:.1f}" in printed
    even = [row["ratio"] for row in rows[1::3] if row["clock"] == "processor"]
    assert all(0.6 < ratio < 1.6 for ratio in even), even
    deeper = [row for row in rows[2::3] if row["clock"] == "processor" and row["job"] == "training"]
    assert deeper[0]["ratio"] > 1.6  # eight encoder layers for one
    assert [row["parameters"] for row in rows[:2]] == [rows[0]["parameters"]] * 2
    assert rows[2]["parameters"] > rows[0]["parameters"]
    assert written["settings"]["torch"] == torch.__version__
    with open(tmp_path / "t.csv", newline="") as stream:
        table = list(csv.DictReader(stream))
    assert [float(row["ratio"]) for row in table] == [row["ratio"] for row in rows]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t.csv", "t.json"]


def test_masked_language_models_of_every_length(tmp_path):
    file = tmp_path / "t.json"
    archs = ["--archs", "gau_masked_lm_tiny", "explicit roformer_masked_lm_tiny", "roberta_base"]
    flags = ["--jobs", "masked-lm", "--size", "tiny", "--layers", "1", "--batch", "2"]
    flags += ["--vocabulary", "50", "--length", "9", "5", "12", "--repeat", "2", "--skip-memory"]
    main(["benchmark", *flags, "--json", str(file), *archs])
    rows = json.loads(file.read_text())["rows"]
    assert [row["tokens"] for row in rows if row["clock"] == "wall"] == [
        length for length in ("9", "5", "12") for _ in range(3)
    ]
    assert all(row["ratio"] == 1 for row in rows if row["model"] == "gau_masked_lm_tiny")


def test_language_models_are_trained_and_continue_prompts(tmp_path):
    file = tmp_path / "t.json"
    archs = ["--archs", "transformer_lm", "roformer_lm_small", "posenc_lm --position-encoding t5"]
    flags = ["--jobs", "lm-training", "lm-generation", "--size", "tiny", "--layers", "1"]
    flags += ["--vocabulary", "50", "--batch", "2", "--length", "3", "9", "--repeat", "2"]
    main(["benchmark", *flags, "--skip-memory", "--json", str(file), *archs])
    rows = [row for row in json.loads(file.read_text())["rows"] if row["clock"] == "wall"]
    assert [row["job"] for row in rows] == ["lm-training"] * 3 + ["lm-generation"] * 3
    assert rows[0]["parameters"] == rows[1]["parameters"]  # sinusoidal has none either
    made = LanguageModelSubject("roformer_lm_small", completed(*flags))
    prompts = made.sample["net_input"]["src_tokens"][:, 1:4].tolist()
    for hypotheses in made.generation()():
        tokens = hypotheses[0]["tokens"]
        assert len(tokens) == 10  # 9 and the end
        assert tokens[:3].tolist() in prompts


@pytest.mark.parametrize(
    "job, archs",
    [
        ("generation", ["transformer", "roformer_tiny"]),
        ("lm-generation", ["posenc_lm --layer gated"]),
    ],
)
def test_single_tokens_at_positions(job, archs, tmp_path, monkeypatch):
    seen, step = [], measure.SteppedSearch._step

    def noted(self, tokens, *args, **kwargs):
        seen.append(tokens.size(1))
        return step(self, tokens, *args, **kwargs)

    monkeypatch.setattr(measure.SteppedSearch, "_step", noted)
    flags = ["--jobs", job, "--positions", "4", "6", "--length", "2", "--repeat", "2"]
    main(["benchmark", *SMALL, *flags, "--archs", *archs, "--json", str(tmp_path / "t.json")])
    rows = json.loads((tmp_path / "t.json").read_text())["rows"]
    assert [row["tokens"] for row in rows] == ["4"] * 2 * len(archs) + ["6"] * 2 * len(archs)
    # two rounds to warm up, two that count, and the token before which the search is ended
    assert sorted(set(seen))[-5:] == [6, 7, 8, 9, 10]
    assert threading.active_count() == 1


def test_errors_of_a_stepped_search_are_shown():
    decoder = torch.nn.Linear(1, 1)
    with pytest.raises(ZeroDivisionError):
        measure.SteppedSearch(lambda: 1 // 0, decoder, 1)
    with pytest.raises(RuntimeError, match="over"):
        measure.SteppedSearch(lambda: None, decoder, 1)


def test_every_encoding_in_every_family_against_stock(tmp_path, monkeypatch):
    monkeypatch.setattr(measure, "WARM_UP", 0)
    file = tmp_path / "t.json"
    flags = ["--all-encodings", "--jobs", "training", "masked-lm", "lm-training", "--skip-memory"]
    main(["benchmark", *SMALL, *flags, "--length", "6", "--repeat", "2", "--json", str(file)])
    rows = [r for r in json.loads(file.read_text())["rows"] if r["clock"] == "wall"]
    for job, stock, generic in (
        ("training", "transformer", "posenc_transformer"),
        ("masked-lm", "roberta_base", "posenc_masked_lm"),
        ("lm-training", "transformer_lm", "posenc_lm"),
    ):
        models = [row["model"] for row in rows if row["job"] == job]
        causal = job == "lm-training"
        names = [name for name in ENCODINGS if causal or not causal_only(name)]
        ours = [f"{generic} --position-encoding {name}" for name in names]
        assert models == [stock, *ours]


def test_memory_is_that_of_a_process_with_one_model():
    args = settings()
    wide = "transformer --encoder-ffn-embed-dim 131072"  # 128 MiB, and its gradients as much
    small, large = (measure.peak_memory(e, "training", args) for e in ("transformer", wide))
    assert small > 50
    assert large - small > 200


USUAL = {
    "models": SMALL,
    "layers": ["--size", "tiny", "--threads", "1", "--skip-memory"],
    "folders": ["--translate", "folder", "source", "reference"],
}


@pytest.mark.parametrize(
    "line, parts",
    [(line, parts) for line, *parts in rows_of(Path(__file__).with_name("mistakes.txt"))],
)
def test_a_mistake_is_named_before_anything_is_measured(line, parts):
    kind, *flags = shlex.split(line)
    with pytest.raises(UsageError) as caught:
        main(["benchmark", *USUAL[kind], *flags])
    message = str(caught.value)
    assert all(part in message for part in parts) and "\n" not in message


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_missing_gpu_is_named():
    with pytest.raises(UsageError, match="--device cuda: PyTorch finds no GPU"):
        main(["benchmark", *SMALL, "--device", "cuda"])


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_on_a_gpu_events_are_the_clock(tmp_path, dtype):
    path = tmp_path / "t.json"
    main(["benchmark", *SMALL, "--device", "cuda", "--dtype", dtype, "--json", str(path)])
    rows = json.loads(path.read_text())["rows"]
    assert {row["clock"] for row in rows} == {"device", "wall"}
    assert all(row["median_ms"] > 0 and row["peak_mib"] > 0 for row in rows)
