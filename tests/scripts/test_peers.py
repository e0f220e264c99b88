"""scripts/benchmark/peers.py: other libraries have the sizes and outputs of ours."""

import sys

import pytest
import torch
from support.benchmark_runs import completed, subject

from attention_peers import PEERS, AttentionOrPeer
from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.benchmark.layers import plug_in_layer
from fairseq_posenc.benchmark.models import MaskedLMSubject
from fairseq_posenc.encodings import rotary
from peers import MaskedLMOrPeer

TINY = ["--size", "tiny", "--threads", "1", "--skip-memory", "--lengths", "9", "--batch", "2"]


def attention(entry):
    return AttentionOrPeer(entry, completed(*TINY))


def steps(made):
    for job in ("attention", "causal-attention"):
        made.start(job)()


@pytest.mark.parametrize("flags", ["", " --favor-kernel relu", " --favor-features 40"])
def test_performer_pytorch_has_our_sizes_and_outputs(flags):
    pytest.importorskip("performer_pytorch", reason="needs pip install performer-pytorch")
    made = attention("performer-pytorch" + flags)
    words = ["--attention", "favor", "--position-encoding", "none", *flags.split()]
    x = torch.randn(30, 2, 128)
    for theirs, causal in (made.encoder, False), (made.decoder, True):
        assert theirs.module.fast_attention.causal == causal
        shapes = sorted(tuple(p.shape) for p in theirs.module.parameters())
        ours = plug_in_layer("", words, completed(*TINY), causal)
        assert sorted(tuple(p.shape) for p in ours.module.parameters()) == shapes
        assert theirs.compute(x).shape == ours.compute(x).shape
    steps(made)


@pytest.mark.parametrize("name", PEERS)
def test_a_peer_has_our_outputs_in_both_forms(name):
    pytest.importorskip(PEERS[name].module, reason=f"needs pip install {PEERS[name].install}")
    made = attention(name)  # compares the outputs
    x = torch.randn(2, 9, 128)
    for layer, causal in (made.encoder, False), (made.decoder, True):
        if not layer.comparable:
            continue
        changed = torch.cat((x[:, :-1], torch.randn(2, 1, 128)), dim=1)
        before, after = (layer.laid_out(layer.compute(layer.laid_out(t))) for t in (x, changed))
        assert torch.equal(before[:, :-1], after[:, :-1]) == causal
    steps(made)


def test_the_layer_with_the_rotation_of_pytorch_asks_for_no_kernel(monkeypatch):
    kernel_for, rotate_all, found = rotary.kernel_for, rotary.Rotary.rotate_all, []

    def noted(*given):
        found.append(rotary.kernel_for)
        return rotate_all(*given)

    monkeypatch.setattr(rotary.Rotary, "rotate_all", noted)
    layer = attention("pytorch-rotation").encoder
    layer.compute(torch.randn(2, 9, 128))
    assert [each(None) for each in found] == [None] and rotary.kernel_for is kernel_for


def test_stock_attention_with_other_positions_is_refused():
    with pytest.raises(UsageError, match="--archs stock .*differ from ours by"):
        attention("stock --position-encoding rotary")


def test_a_peer_that_computes_something_else_is_named():
    pytest.importorskip("performer_pytorch", reason="needs pip install performer-pytorch")
    with pytest.raises(UsageError, match="--archs performer-pytorch .*differ from ours by"):
        attention("performer-pytorch --favor-epsilon 0.5")


def test_what_is_no_peer_or_is_missing_is_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "performer_pytorch", None)
    with pytest.raises(UsageError, match="performer-pytorch: .*pip install performer-pytorch"):
        attention("performer-pytorch")
    with pytest.raises(UsageError, match="'gpt': .* softmax, .*x-transformers"):
        AttentionOrPeer.check("gpt", ["attention"])
    with pytest.raises(UsageError, match="gau-alpha takes no flag but --vocabulary"):
        MaskedLMOrPeer.check("gau-alpha --dropout 0", ["masked-lm"])
    MaskedLMOrPeer.check("hf-roformer --vocabulary 60", ["masked-lm"])


def masked_lm(entry, *flags, kind=MaskedLMOrPeer):
    return subject(entry, "--length", "9", "--size", "bert-base", *flags, kind=kind)


def test_hf_roformer_has_our_parameters_and_trains():
    pytest.importorskip("transformers", reason="an extra: convert")
    made = masked_lm("hf-roformer --vocabulary 60", "--size", "tiny")
    config = made.model.config
    assert (config.vocab_size, config.hidden_size, config.num_hidden_layers) == (60, 128, 1)
    made.training()()
    assert made.loss() > 0


def test_gau_alpha_computes_what_ours_does():
    try:
        import gau_alpha  # noqa: F401
    except ImportError:  # of the package, or of what newer transformers do not have
        pytest.skip("needs pip install gau-alpha 'transformers<4.47'")
    theirs = masked_lm("gau-alpha")
    assert len(theirs.model.gau_alpha.encoder.layer) == 2
    ours = masked_lm("gau_masked_lm_base --encoder-layers 2", kind=MaskedLMSubject)
    theirs.model.eval(), ours.model.eval()
    assert ours.loss().item() == pytest.approx(theirs.loss().item(), rel=1e-5)
