"""scripts/benchmark: what is timed, that figures are consistent, peers, and the tables of a GPU."""

import json
import random
import statistics
import sys

import pytest
import torch
from support.benchmark_runs import SMALL, subject
from support.shell_scripts import SCRIPTS, shell

import rounds
from fairseq_posenc.attention.joint import JoinedParameters
from fairseq_posenc.basics.errors import UsageError
from gpu_tables import TABLES
from peers import PEERS, AttentionOrPeer
from subjects import LanguageModelSubject
from time_models import cases, get_parser, main

pytestmark = pytest.mark.properties

LAYER = ["--length", "9", "--batch", "2"]


def rows_of(tmp_path, *flags):
    """The rows of the first clock that the script writes."""
    main([*SMALL, "--repeat", "2", *flags, "--json", str(tmp_path / "t.json")])
    rows = json.loads((tmp_path / "t.json").read_text())["rows"]
    return [row for row in rows if row["clock"] == "processor"]


def test_ratios_are_of_the_same_round():
    draw = random.Random(1)
    weather = [draw.uniform(1, 50) for _ in range(9)]  # a machine with other work to do
    factors = [2 + i / 10 for i in range(9)]
    times = [weather, [w * f for w, f in zip(weather, factors)]]
    base, other = rounds.compare(times)
    assert base.pop("median_ms") == statistics.median(weather)
    assert set(base.values()) == {1}
    assert other["median_ms"] == sorted(times[1])[4]
    assert other["ratio"] == pytest.approx(2.4)
    assert (other["ratio_q1"], other["ratio_q3"]) == pytest.approx((2.2, 2.6))


def test_the_batch_is_padded_as_fairseq_pads():
    flags = ("--batch", "4", "--length", "16", "8", "--seed", "3")
    first, second = (subject(arch, *flags).sample for arch in ("transformer", "roformer_base"))
    source, target = first["net_input"]["src_tokens"], first["target"]
    assert torch.equal(source, second["net_input"]["src_tokens"])
    assert source.shape == (4, 16) and target.shape == (4, 8)
    assert source.ne(1).sum(1).tolist() == [16, 15, 14, 13]
    assert source[:, -1].eq(2).all()  # padding left of the source
    assert target[:, 0].ne(1).all() and target[:, -1].eq(1).any()  # and right of the target


def test_a_step_does_not_add_to_the_gradients_of_the_one_before():
    made = subject("transformer --dropout 0")
    weight = made.model.encoder.layers[0].fc1.weight
    made.run()
    before = weight.grad.clone()
    made.run()
    assert before.abs().sum() > 0 and torch.allclose(weight.grad, before)


def test_jobs_of_running_text(tmp_path):
    archs = ["roberta_base", "explicit gau_masked_lm_tiny --vocabulary 70"]
    rows = rows_of(tmp_path, "--jobs", "masked-lm", "--archs", *archs)
    assert [(r["length"], r["model"]) for r in rows] == [(n, m) for n in "97" for m in archs]
    made = subject("roformer_lm_small", "--length", "3", "9", kind=LanguageModelSubject)
    prompts = made.sample["net_input"]["src_tokens"][:, 1:4].tolist()
    made.run()
    for hypotheses in made.generation()():
        assert len(hypotheses[0]["tokens"]) == 10  # 9 and the end
        assert hypotheses[0]["tokens"][:3].tolist() in prompts
    flags = ["--jobs", "generation", "--positions", "4", "6", "--length", "2"]
    rows = rows_of(tmp_path, *flags, "--archs", "transformer", "roformer_tiny")
    assert [row["length"] for row in rows] == ["4", "4", "6", "6"]


def test_words_before_an_entry_switch_something_off_while_it_runs():
    found, made = [], subject("no-joint roformer_base")
    real = JoinedParameters.current
    made.loss = lambda: found.append(JoinedParameters.current) or torch.ones((), requires_grad=True)
    made.run()
    assert found[0](None, None) == {} and real is JoinedParameters.current
    plain = subject("transformer", job="generation").run()
    copied = subject("no-sharing transformer", job="generation").run()
    assert torch.equal(plain[0][0]["tokens"], copied[0][0]["tokens"])


def test_memory_holds_weights_and_gradients():
    wide = "transformer --encoder-ffn-embed-dim 131072"  # 128 MiB, and its gradients as much
    assert rounds.peak_memory(subject(wide)) > 50 + 200


def test_jobs_of_different_models_are_refused(capsys):
    with pytest.raises(SystemExit):
        main(["--jobs", "training", "masked-lm"])
    assert "--jobs training masked-lm: different kinds" in capsys.readouterr().err


# ---- attention layers, ours and of other libraries


def attention(entry, causal, *flags):
    job = "causal-attention" if causal else "attention"
    return subject(entry, *LAYER, *flags, kind=AttentionOrPeer, job=job)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", ["softmax", "favor", "local --local-window 8", *PEERS])
def test_a_layer_is_that_of_an_encoder_or_of_a_decoder(name, causal):
    peer = PEERS.get(name)
    if peer:
        pytest.importorskip(peer.module, reason=f"needs pip install {peer.install}")
    made = attention(name, causal)  # compares a peer's outputs with ours
    layer, x = made.layer, torch.randn(2, 9, 128)
    changed = torch.cat((x[:, :-1], torch.randn(2, 1, 128)), dim=1)
    before, after = (layer.laid_out(layer.compute(layer.laid_out(t))) for t in (x, changed))
    if layer.comparable:
        assert torch.equal(before[:, :-1], after[:, :-1]) == causal
    made.run()
    weights = [p for p in made.model.parameters() if p.dim() == 2]  # not a peer's fixed angles
    assert len(weights) == 4 and all(weight.grad.abs().sum() > 0 for weight in weights)


def test_a_layer_that_computes_something_else_or_is_missing_is_named(monkeypatch):
    with pytest.raises(UsageError, match="--archs stock.*differ from ours by"):
        attention("stock --position-encoding rotary", False)
    with pytest.raises(UsageError, match="t5 adds to the logits"):
        attention("softmax --position-encoding t5", False)
    monkeypatch.setitem(sys.modules, "performer_pytorch", None)
    with pytest.raises(UsageError, match="performer-pytorch: .*pip install performer-pytorch"):
        attention("performer-pytorch", False)


# ---- the tables of a GPU


def test_the_tables_have_flags_that_the_script_takes():
    for table in TABLES.values():
        args = get_parser().parse_args([*table.flags.split(), "--archs", *table.archs])
        assert cases(args) and "--archs" not in table.flags


def test_without_a_gpu_it_says_so(tmp_path):
    ended = shell(SCRIPTS / "gpu_tables.sh", tmp_path / "out", env={"PATH": "/usr/bin:/bin"})
    assert ended.returncode == 1 and "no GPU here; --cpu tries" in ended.stderr


@pytest.mark.slow
def test_all_tables_are_tried_on_a_cpu(tmp_path):
    ended = shell(SCRIPTS / "gpu_tables.sh", "--cpu", "--minutes", "20", tmp_path, timeout=1300)
    assert ended.returncode == 0, ended.stderr
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    timed = {row["table"] for row in rows if "ratio" in row}
    assert timed == set(TABLES)
    errors = {row.get("model") for row in rows if "error" in row}
    assert errors <= {"flash-linear-attention", "hf-roformer"}  # packages that may be missing
