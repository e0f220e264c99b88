"""The Funnel Transformer: pooling, positions of pooled tokens, padding; transformers' outputs.

Dai, Lai, Yang, Le, arXiv 2006.03236.
"""

import functools

import pytest
import torch
from golden import load
from support.commands import read, shape, train
from support.dense_attention import attended
from support.helpers import PAD
from support.masked_language_models import SMALL, Vocabulary, build, padded_texts, texts
from support.masked_lm_runs import CLASSIFY, MASKED
from support.masked_lm_runs import SHAPE as SIZES

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.models.masked_lm import MODEL
from fairseq_posenc.packs.long_sequences.funnel import pool, upsample
from fairseq_posenc.stacks.encoder import Requested

pytest_plugins = ["support.toy", "support.masked_lm_runs"]

pytestmark = pytest.mark.formulas
SHAPE = [*SMALL[2:], "--funnel-stages", "2,1,2", "--funnel-decoder-layers", "1"]
SHAPE += ["--activation-fn", "tanh"]  # computed in float64, unlike gelu
NAMES = ["rotary", "t5", "alibi", "kerple", "transformer_xl", "none", "learned", "rotary+t5"]
NAMES += ["shaw", "deberta"]
padded = functools.partial(padded_texts, 14, 9, 2)


def tiny(encoding, *flags):
    torch.manual_seed(0)
    flags = ["--position-encoding", encoding, *SHAPE, *flags]
    return build("posenc_masked_lm", *flags, length=40).double()


def by_hand(encoder, tokens):
    """The hidden states of all tokens, and the hidden states of the last stage."""
    hidden = tokens.eq(PAD)
    x = encoder.begin(tokens)[0].like
    at, layers, start = torch.arange(tokens.size(1)), list(encoder.layers), 0

    def apply(layer, x, keys, at, key_at, hidden):
        x = layer.self_attn_layer_norm(x + attended(encoder, layer, x, keys, at, key_at, hidden))
        inner = layer.fc2(layer.fc1(x).tanh())
        return layer.final_layer_norm(x + inner)

    first, begin = None, (at, hidden)
    for stage, count in enumerate(encoder.stages):
        keys, key_at, key_hidden = x, at, hidden
        if stage:
            groups = [[0]] + [[i, i + 1][: x.size(1) - i] for i in range(1, x.size(1), 2)]
            rows = []
            for b in range(len(x)):
                real = [[i for i in group if not hidden[b, i]] for group in groups]
                means = [x[b, g].mean(0) if g else torch.zeros_like(x[b, 0]) for g in real]
                rows.append(torch.stack(means))
            x = torch.stack(rows)
            hidden = torch.stack([hidden[:, group].all(dim=1) for group in groups], dim=1)
            at = torch.tensor([1 - 2**stage] + [int(at[group[0]]) for group in groups[1:]])
        for index, layer in enumerate(layers[start : start + count]):
            if index:
                keys, key_at, key_hidden = x, at, hidden
            x = apply(layer, x, keys, at, key_at, key_hidden)
        start += count
        first = x if first is None else first
    last, times = x, 2 ** (len(encoder.stages) - 1)
    up = [0] + [1 + i // times for i in range(tokens.size(1) - 1)]
    x = first + last[:, up]
    for layer in layers[start:]:
        x = apply(layer, x, x, begin[0], begin[0], begin[1])
    return x, last


@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_stages_are_what_the_formulas_say(name):
    encoder, tokens = tiny(name).encoder.sentence_encoder, padded()
    x, last = by_hand(encoder, tokens)
    tolerance = 1e-6 if "rotary" in name or name == "transformer_xl" else 1e-9  # float32 tables
    got = encoder(tokens)["encoder_out"][0].transpose(0, 1)
    real = tokens.ne(PAD)
    torch.testing.assert_close(got[real], x[real], atol=tolerance, rtol=0)
    got = encoder.features(tokens, Requested(by_token=False)).x
    numbers = torch.tensor([[5], [3], [2]])  # [CLS] and ⌈13/4⌉, ⌈8/4⌉, ⌈1/4⌉
    real = torch.arange(got.size(1)) < numbers
    torch.testing.assert_close(got[real], last[real], atol=tolerance, rtol=0)


@torch.no_grad()
def test_texts_of_a_cls_or_padding_alone_and_padding_on_the_left():
    model, tokens, x = tiny("transformer_xl"), padded(), torch.randn(2, 1, 3)
    tokens[1] = PAD
    assert torch.isfinite(model(tokens)[0]).all()
    with pytest.raises(UsageError, match="--funnel-stages: a text is padded on the left"):
        model(padded().flip(1))
    assert torch.equal(pool(x, None)[0], x) and torch.equal(upsample(x, 4, 1), x)
    assert model(texts(2, 1))[0].shape[:2] == (2, 1)


def halves(weight):
    """Reorder columns (…, C) from all sines, then all cosines, to alternating sines and cosines."""
    return torch.stack(weight.chunk(2, dim=-1), dim=-1).flatten(-2)


def from_transformers(state, blocks, layers):
    """transformers' parameters under our names."""
    found = {"embed_tokens.weight": state["embeddings.word_embeddings.weight"]}
    for end in ("weight", "bias"):
        found[f"layernorm_embedding.{end}"] = state[f"embeddings.layer_norm.{end}"]
    places = [f"encoder.blocks.{b}.{i}." for b, n in enumerate(blocks) for i in range(n)]
    places += [f"decoder.layers.{i}." for i in range(layers)]
    names = {"q_head": "q_proj", "k_head": "k_proj", "v_head": "v_proj", "post_proj": "out_proj"}
    others = {"attention.layer_norm": "self_attn_layer_norm", "ffn.layer_norm": "final_layer_norm"}
    others.update({"ffn.linear_1": "fc1", "ffn.linear_2": "fc2"})
    others.update({f"attention.{old}": f"self_attn.{new}" for old, new in names.items()})
    for index, place in enumerate(places):
        for old, new in others.items():
            for end in ("weight", "bias"):
                value = state.get(f"{place}{old}.{end}")
                value = torch.zeros(16) if value is None else value  # queries have no bias
                found[f"layers.{index}.{new}.{end}"] = value
        terms = f"layers.{index}.self_attn.position_terms.transformer_xl."
        kernel = state[f"{place}attention.r_kernel"].flatten(1).t()
        found[f"{terms}proj.weight"] = halves(kernel)
        found[f"{terms}u"] = state[f"{place}attention.r_w_bias"].unsqueeze(1)
        found[f"{terms}v"] = state[f"{place}attention.r_r_bias"].unsqueeze(1)
    return found


@torch.no_grad()
def test_states_of_all_stages_are_those_of_transformers():
    reference = load("funnel")
    stages = ",".join(map(str, reference["config"]["block_sizes"]))
    flags = ["--position-encoding", "transformer_xl", "--activation-fn", "relu", "--dropout", "0"]
    flags += [*shape(5, 16, 24, 2, "encoder"), "--attention-dropout", "0"]
    flags += ["--funnel-stages", stages, "--funnel-decoder-layers", "1"]
    model = build("posenc_masked_lm", *flags, vocabulary=Vocabulary([""] * 11))
    encoder = model.encoder.sentence_encoder
    state = from_transformers(reference["state_dict"], [1, 2, 1], 1)
    missing, unexpected = encoder.load_state_dict(state, strict=False)
    assert not unexpected and all(name == "version" for name in missing)
    encoder.padding_idx = -1  # the reference's texts have no padding
    found = encoder(reference["inputs"]["tokens"], return_all_hiddens=True)
    outputs = reference["outputs"]
    for number in range(5):
        got = found["encoder_states"][number].transpose(0, 1)
        torch.testing.assert_close(got, outputs[f"state{number}"], atol=2e-5, rtol=1e-5)
    got = found["encoder_out"][0].transpose(0, 1)
    torch.testing.assert_close(got, outputs["last"], atol=2e-5, rtol=1e-5)


def test_a_funnel_encoder_is_pretrained_and_fine_tuned(corpora, tmp_path):
    """The stages determine the number of layers, whatever the preset has."""
    flags = ["--arch", "transformer_xl_masked_lm_base", "--funnel-stages", "1,1,1"]
    train(corpora.text, tmp_path / "pre", *flags, *SIZES[2:], *MASKED)
    source = ["--finetune-from-model", tmp_path / "pre" / "checkpoint_last.pt"]
    flags = ["--arch", MODEL, *CLASSIFY, "--num-classes", "2", *source]
    assert "valid 1" in train(corpora.pairs, tmp_path / "fine", *flags).losses()
    after, settings = read(tmp_path / "fine" / "checkpoint_last.pt")
    assert (settings["funnel_stages"], settings["encoder_layers"]) == ("1,1,1", 5)
    before, _ = read(tmp_path / "pre" / "checkpoint_last.pt")
    weights = [f"encoder.sentence_encoder.layers.{i}.fc1.weight" for i in range(5)]
    same = [torch.equal(before[name], after[name]) for name in weights]
    assert same == [False, False, False, True, True]  # fine-tuning does not use the decoder
