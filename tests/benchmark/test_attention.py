"""fairseq-posenc benchmark --lengths: the layers that it times, and what it reports."""

import json

import pytest
import torch
from support.benchmark_runs import completed

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.benchmark import run as report
from fairseq_posenc.benchmark.layers import AttentionSubject
from fairseq_posenc.benchmark.measure import rounds_at
from fairseq_posenc.benchmark.options import ATTENTION_ENTRIES as ENTRIES
from fairseq_posenc.cli import main

TINY = ["--size", "tiny", "--threads", "1", "--skip-memory"]


def subject(entry, *flags, kind=AttentionSubject):
    return kind(entry, completed(*TINY, "--lengths", "9", *flags))


@pytest.mark.parametrize("entry", ENTRIES)
def test_the_layers_are_those_of_an_encoder_and_of_a_decoder(entry):
    short = {  # or nine tokens would not meet, or be as good as in one place
        "reformer": " --reformer-buckets 2",
        "cosformer": " --max-source-positions 16 --max-target-positions 16",
    }
    made = subject(entry + short.get(entry.split()[0], ""), "--size", "base")
    encoding = "none" if "none" in entry else "rotary"
    for layer, causal in (made.encoder, False), (made.decoder, True):
        assert (layer.channels, layer.module.num_heads, layer.module.head_dim) == (512, 8, 64)
        assert layer.module.encoding.name == encoding
        x = torch.randn(1, 9, 512)
        changed = torch.cat((x[:, :-1], torch.randn(1, 1, 512)), dim=1)
        before, after = (layer.compute(t)[:, :-1] for t in (x, changed))
        assert torch.equal(before, after) == causal
        swapped = x[:, [1, 0, *range(2, 9)]]
        last, other = (layer.compute(t)[:, -1] for t in (x, swapped))
        assert not torch.allclose(last, other, atol=1e-5)


def test_attention_without_a_causal_form_is_that_of_a_masked_language_model():
    made = subject("linformer --position-encoding none --linformer-size 7")
    assert made.encoder.module.key_projection.shape[1] == 7
    made.start("attention")()
    with pytest.raises(UsageError, match="--attention linformer: .* must not see later keys"):
        made.start("causal-attention")


def test_an_entry_has_flags_of_its_own():
    favor = subject("favor --favor-kernel relu --favor-features 6 --position-encoding none")
    assert favor.model.feature_map.kernel == "relu"
    assert favor.model.feature_map.projection.shape == (6, 32)
    assert favor.model.encoding.name == "none"
    narrow = subject("elu --encoder-attention-heads 2 --encoder-embed-dim 64 "
                     "--decoder-attention-heads 2 --decoder-embed-dim 64")  # fmt: skip
    narrow.start("attention")()
    assert narrow.encoder.channels == 64


@pytest.mark.parametrize("job", ["attention", "causal-attention"])
def test_a_step_trains_every_parameter_and_adds_nothing_up(job):
    made = subject("favor", "--batch", "2")
    layer = made.of(job)
    step = made.start(job)
    step()
    first = {name: p.grad.clone() for name, p in layer.module.named_parameters()}
    assert len(first) == 8 and all(grad.abs().sum() > 0 for grad in first.values())
    step()
    for name, p in layer.module.named_parameters():
        torch.testing.assert_close(p.grad, first[name])


@pytest.mark.parametrize("entry", ["local --local-window 8", "bigbird --bigbird-block-size 8"])
def test_attention_with_a_pattern_of_its_own_takes_several_sentences(entry):
    made = subject(entry, "--batch", "2")
    for job in ("attention", "causal-attention"):
        made.start(job)()


def test_the_exponent_is_that_of_a_power_law():
    lengths = [512, 1024, 4096]
    rows = [
        {"job": "attention", "clock": "wall", "model": model, "tokens": str(n),
         "median_ms": 3e-4 * n**power}
        for n in lengths
        for model, power in (("a", 1.0), ("b", 1.75))
    ]  # fmt: skip
    fitted = report.exponents(rows)
    assert [row["model"] for row in fitted] == ["a", "b"]
    assert [row["exponent"] for row in fitted] == pytest.approx([1.0, 1.75])
    assert {(row["shortest"], row["longest"]) for row in fitted} == {(512, 4096)}
    assert report.exponents(rows[:2]) == []
    assert report.exponents([rows[0], rows[0]]) == []  # one length, the entry given twice
    tokens = report.per_token(rows[:1], 4)
    assert tokens[0]["token_us"] == pytest.approx(0.3 / 4)


def test_longer_sequences_have_fewer_rounds_but_not_too_few():
    lengths = [512, 1024, 2048, 16384]
    assert [rounds_at(11, n, 512) for n in lengths] == [11, 5, 3, 3]
    assert [rounds_at(2, n, 512) for n in lengths] == [2, 2, 2, 2]


def test_both_forms_at_every_length_in_a_table_and_a_figure(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    names = {"--csv": "t.csv", "--json": "t.json", "--plot": "t.png"}
    files = [word for flag, name in names.items() for word in (flag, str(tmp_path / name))]
    main(["benchmark", *TINY, "--lengths", "16,8", "--repeat", "2", *files])
    written = json.loads((tmp_path / "t.json").read_text())
    rows = written["rows"]
    jobs = ["attention", "causal-attention"]
    assert [(r["tokens"], r["job"], r["model"]) for r in rows if r["clock"] == "wall"] == [
        (length, job, entry) for length in ("8", "16") for job in jobs for entry in ENTRIES
    ]
    for row in rows:
        assert row["token_us"] == pytest.approx(1e3 * row["median_ms"] / int(row["tokens"]))
        assert row["ratio"] == 1 or row["model"] != "softmax"
    assert len(written["exponents"]) == 2 * 2 * len(ENTRIES)  # jobs and clocks
    printed = capsys.readouterr().out
    assert all(f"{row['token_us']:.2f}" in printed for row in rows)
    lines = [line.split()[-3:] for line in printed.splitlines()]
    assert all([f"{row['exponent']:.3f}", "8", "16"] in lines for row in written["exponents"])
    assert (tmp_path / "t.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names.values())


def test_memory_has_panels_of_its_own(tmp_path):
    pytest.importorskip("matplotlib")
    rows = [
        {"job": "attention", "clock": "wall", "model": "elu", "tokens": str(n), "token_us": 1.0,
         "peak_mib": memory}
        for n, memory in ((8, 300.0), (16, 400.0))
    ]  # fmt: skip
    files = [tmp_path / "with.png", tmp_path / "without.png"]
    report.draw(rows, "wall", files[0])
    report.draw([dict(row, peak_mib=None) for row in rows], "wall", files[1])
    height = [int.from_bytes(file.read_bytes()[20:24], "big") for file in files]
    assert height[0] == 2 * height[1]
