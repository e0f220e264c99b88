"""The language-model family: the recorded length of training, prompts, and a preset's layers."""

from argparse import Namespace

import pytest
import torch
from fairseq.sequence_generator import SequenceGenerator
from fairseq.tasks.language_modeling import LanguageModelingTask
from support.causal_language_models import SMALL, build, tiny
from support.helpers import (
    PAD,
    VOCABULARY,
    model_settings,
    sentences,
)
from support.lists import rows_of

pytestmark = pytest.mark.formulas

B, T = 3, 9


@pytest.mark.parametrize(
    "flags, trained",
    [
        ("", 32),
        ("--add-bos-token", 33),
        ("--max-target-positions 64", 32),
        ("--max-target-positions 16", 16),
        # sentences may be longer than --tokens-per-sample
        ("--max-target-positions 64 --sample-break-mode eos", 64),
        *rows_of("lengths_of_training.txt"),  # from the packs
    ],
)
def test_the_length_of_training(flags, trained):
    flags = ["--tokens-per-sample", "32", *flags.split()]
    cfg = model_settings("roformer_lm_tiny", *flags, task="language_modeling")
    assert cfg.rotary_original_length == int(trained)


def continuations(model, prompts, left, **search):
    """A beam search's hypotheses after *prompts* (lists of tokens), padded left or right."""
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


ALONE = ["learned", "rotary", "cope", "favor:rotary", "gated:rotary", "learned --decoder-layers 0"]


@pytest.mark.parametrize("name", ALONE)
def test_prompts_padded_on_either_side_are_continued_as_alone(name):
    model = tiny(*name.split())
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
    """Yang et al. 2501.18795; layers without positions have a window beyond the longest input."""
    model = build("rnope_swa_lm", *SMALL, "--decoder-layers", "8")
    layers = model.decoder.layers
    assert [layer.encoding.name for layer in layers] == (["rotary"] * 3 + ["none"]) * 2
    assert [layer.self_attn.before for layer in layers] == ([512] * 3 + [65536]) * 2
