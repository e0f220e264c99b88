"""The language-model family: stock's outputs, embeddings, prompts."""

import shlex
from argparse import Namespace

import pytest
import torch
from fairseq.models.transformer_lm import TransformerLanguageModel
from fairseq.sequence_generator import SequenceGenerator
from fairseq.tasks.language_modeling import LanguageModelingTask
from support.causal_language_models import SMALL, build, task_of, tiny
from support.helpers import (
    LAYERS,
    OTHER_LAYERS,
    PAD,
    VOCABULARY,
    model_settings,
    sentences,
)
from support.lists import rows_of

from fairseq_posenc.models.language_model import MODEL

pytestmark = pytest.mark.formulas

B, T = 3, 9
# stock keeps 512 unless told, whatever the layers have
SIZES = ["--decoder-input-dim", "32", "--decoder-output-dim", "32"]
FEATURES = []
for _name, _flags, _encodings in rows_of("language_models.txt"):  # of packs, as properties.txt
    LAYERS[_name] = shlex.split(_flags)
    FEATURES += [f"{_name}:{encoding}" for encoding in _encodings.split()]
#: of every place and every kind of cache; tests/test_properties.py has all, beside an encoder
NAMES = "learned sinusoidal+rotary t5 tupe+t5 shaw transformer_xl cope fox".split() + FEATURES
KERNELS = "favor:rotary cosformer:none gated:rotary local:rotary bigbird:t5 reformer:rotary"
NAMES += [name for name in [*KERNELS.split(), "mixed_chunks:rotary"] if name in OTHER_LAYERS]
every_kind = pytest.mark.parametrize("name", NAMES)


@every_kind
def test_every_parameter_is_used_so_that_several_gpus_take_the_default_back_end(name):
    model = tiny(name).train()
    model(sentences(B, T))[0].sum().backward()
    assert [key for key, p in model.named_parameters() if p.grad is None] == []


ADAPTIVE = (
    "--adaptive-input --adaptive-input-cutoff 16,40 --adaptive-input-factor 2 --adaptive-softmax-"
    "cutoff 16,40 --adaptive-softmax-factor 2 --criterion adaptive_loss --ddp-backend legacy_ddp"
)
STOCK = [
    "",
    "--decoder-learned-pos",
    "--no-token-positional-embeddings",
    "--decoder-normalize-before",
    "--decoder-normalize-before --no-decoder-final-norm",
    "--share-decoder-input-output-embed",
    ADAPTIVE,
    ADAPTIVE + " --tie-adaptive-weights --tie-adaptive-proj",
    "--character-embeddings --character-filters [(1,4),(2,8)]",
    "--decoder-input-dim 16 --decoder-output-dim 24",
    "--layernorm-embedding --no-scale-embedding --activation-fn gelu",
    # from its command line, stock takes no notice of these
    "--scale-fc --scale-attn --scale-heads --scale-resids --decoder-normalize-before",
]


@pytest.mark.parametrize("flags", STOCK)
@torch.no_grad()
def test_with_stocks_parameters_it_computes_what_stock_computes(flags):
    flags = [*SMALL, *SIZES, *flags.split(), "--tokens-per-sample", "16"]
    ours = build(MODEL, *flags)
    cfg = model_settings("transformer_lm", *flags, task="language_modeling")
    stock = TransformerLanguageModel.build_model(Namespace(**cfg), task_of()).eval()
    for parameter in stock.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    ours.load_state_dict(stock.state_dict(), strict=True)
    tokens = sentences(2, 9)
    tokens[1, 6:] = PAD
    sample = {"target": tokens, "net_input": {"src_tokens": tokens}}
    want, got = (
        m.get_normalized_probs(m(tokens, src_lengths=None), True, sample) for m in (stock, ours)
    )
    real = tokens.ne(PAD)
    torch.testing.assert_close(got[real], want[real], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    "flags, trained",
    [
        ("", 32),
        ("--add-bos-token", 33),
        ("--max-target-positions 64", 32),
        ("--max-target-positions 16", 16),
        # whole sentences may be longer than a block
        ("--max-target-positions 64 --sample-break-mode eos", 64),
        *rows_of("lengths_of_training.txt"),  # those of packs
    ],
)
def test_the_length_of_training(flags, trained):
    flags = ["--tokens-per-sample", "32", *flags.split()]
    cfg = model_settings("roformer_lm_tiny", *flags, task="language_modeling")
    assert cfg.rotary_original_length == int(trained)


def continuations(model, prompts, left, **search):
    """What a beam search writes after *prompts*, lists of tokens, padded on one side."""
    longest = max(map(len, prompts)) + 1
    rows = []
    for prompt in prompts:
        text, gap = [VOCABULARY.eos(), *prompt], [PAD] * (longest - 1 - len(prompt))
        rows.append(gap + text if left else text + gap)
    lengths = torch.tensor([len(prompt) + 1 for prompt in prompts])
    sample = {"net_input": {"src_tokens": torch.tensor(rows), "src_lengths": lengths}}
    task = LanguageModelingTask(Namespace(add_bos_token=False), VOCABULARY)
    generator = SequenceGenerator([model], VOCABULARY, max_len_b=15, **search)
    found = task.inference_step(generator, [model], sample)
    return [[(h["tokens"].tolist(), h["score"].item()) for h in best] for best in found]


@every_kind
def test_prompts_padded_on_either_side_are_continued_as_alone(name):
    model = tiny(name)
    prompts = [sentences(1, length, seed=length)[0].tolist() for length in (6, 2, 4)]
    alone = [continuations(model, [prompt], False, beam_size=2)[0] for prompt in prompts]
    for left in (True, False):
        for found, want, prompt in zip(
            continuations(model, prompts, left, beam_size=2), alone, prompts
        ):
            assert [tokens for tokens, _ in found] == [tokens for tokens, _ in want]
            assert [score for _, score in found] == pytest.approx([s for _, s in want], abs=1e-4)
            assert found[0][0][: len(prompt)] == prompt
            assert len(found[0][0]) > len(prompt)


def test_layers_of_rnope_swa_alternate_between_rotary_in_a_window_and_no_positions():
    """Yang et al. 2501.18795; the window without positions is longer than what the model takes."""
    model = build("rnope_swa_lm", *SMALL, "--decoder-layers", "8")
    layers = model.decoder.layers
    assert [layer.encoding.name for layer in layers] == (["rotary"] * 3 + ["none"]) * 2
    assert [layer.self_attn.before for layer in layers] == ([512] * 3 + [65536]) * 2
