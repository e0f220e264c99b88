"""With fairseq's flags, our models have stock's initial weights, outputs and gradients."""

from argparse import Namespace

import pytest
import torch
from fairseq import models
from support.causal_language_models import SMALL as SMALL_LM
from support.helpers import PAD, TINY, model_settings, parameters_of, sentences, task_of
from support.masked_language_models import SMALL as SMALL_MLM

pytestmark = pytest.mark.formulas

NO_DROPOUT = ["--dropout", "0", "--attention-dropout", "0"]
TRANSLATION = ["transformer", "posenc_transformer", "translation", *TINY, *NO_DROPOUT]
LM = ["transformer_lm", "posenc_lm", "language_modeling", *SMALL_LM, "--tokens-per-sample", "16"]
# in stock, these are 512 by default, whatever the width of the layers
LM += ["--decoder-input-dim", "32", "--decoder-output-dim", "32"]
MASKED = ["roberta_base", "bert_a_masked_lm_base", "masked_lm", *SMALL_MLM, *NO_DROPOUT]
MASKED += ["--tokens-per-sample", "64"]
SOFTMAX = (
    "--adaptive-softmax-cutoff 16,40 --adaptive-softmax-factor 2 --criterion adaptive_loss "
    "--ddp-backend legacy_ddp"
)
ADAPTIVE = "--adaptive-input --adaptive-input-cutoff 16,40 --adaptive-input-factor 2 " + SOFTMAX
FLAGS = [
    (TRANSLATION, "--encoder-learned-pos"),
    (TRANSLATION, "--encoder-learned-pos --decoder-learned-pos"),
    (TRANSLATION, "--no-token-positional-embeddings --activation-fn gelu_accurate"),
    (TRANSLATION, "--encoder-normalize-before --decoder-normalize-before"),
    (TRANSLATION, "--decoder-normalize-before --no-decoder-final-norm"),
    (TRANSLATION, "--share-decoder-input-output-embed --no-cross-attention"),
    (TRANSLATION, "--share-all-embeddings --max-source-positions 12 --max-target-positions 13"),
    (TRANSLATION, "--layernorm-embedding --no-scale-embedding --checkpoint-activations"),
    (TRANSLATION, "--decoder-embed-dim 24 --decoder-ffn-embed-dim 40 --decoder-layers 1 "
                  "--decoder-attention-heads 2 --decoder-output-dim 12"),
    (TRANSLATION, "--encoder-layerdrop 0.5 --decoder-layerdrop 0.5"),
    (TRANSLATION, SOFTMAX + " --adaptive-softmax-dropout 0.1"),
    (LM, ""),
    (LM, "--decoder-learned-pos"),
    (LM, "--no-token-positional-embeddings"),
    (LM, "--decoder-normalize-before"),
    (LM, "--decoder-normalize-before --no-decoder-final-norm"),
    (LM, "--share-decoder-input-output-embed"),
    (LM, ADAPTIVE),
    (LM, ADAPTIVE + " --tie-adaptive-weights --tie-adaptive-proj"),
    (LM, "--character-embeddings --character-filters [(1,4),(2,8)]"),
    (LM, "--decoder-input-dim 16 --decoder-output-dim 24"),
    (LM, "--layernorm-embedding --no-scale-embedding --activation-fn gelu"),
    # stock ignores these flags if they come from the command line
    (LM, "--scale-fc --scale-attn --scale-heads --scale-resids --decoder-normalize-before"),
    (MASKED, ""),
]  # fmt: skip


def build(arch, task, flags):
    holder = task_of(task)
    holder.max_positions = lambda: 64
    cfg = model_settings(arch, *flags, task=task)
    cfg = cfg if isinstance(cfg, Namespace) else Namespace(**cfg)
    torch.manual_seed(1)
    return models.ARCH_MODEL_REGISTRY[arch].build_model(cfg, holder)


@pytest.mark.parametrize("usual, flags", FLAGS)
def test_a_flag_does_what_it_does_to_stock(usual, flags):
    (theirs, ours, task, *sizes), learned = usual, []
    tokens = sentences(2, 9)
    tokens[1, 6:] = PAD
    inputs = (tokens, None, tokens) if task == "translation" else (tokens,)
    sample = {"target": tokens, "net_input": {"src_tokens": tokens}}
    stock, model = (build(arch, task, [*sizes, *flags.split()]) for arch in (theirs, ours))
    if task == "masked_lm":  # initialised as BERT
        model.load_state_dict(stock.state_dict(), strict=True)
    state = parameters_of(model)
    assert all(torch.equal(state[name], value) for name, value in parameters_of(stock).items())
    for each in (stock, model):
        torch.manual_seed(2)  # for LayerDrop
        output = each.train()(*inputs)
        output[0][tokens.ne(PAD)].pow(2).mean().backward()
        with torch.no_grad():
            scores = each.get_normalized_probs(output, True, sample)
        parameters = parameters_of(each)
        gradients = {n: parameters[n].grad for n in parameters_of(stock)}
        learned.append((scores.view(*tokens.shape, -1)[tokens.ne(PAD)], gradients))
    (want, expected), (got, found) = learned
    torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-4)
    assert len(expected) > 10
    for name, gradient in expected.items():
        assert (gradient is None) == (found[name] is None), name
        if gradient is not None:
            torch.testing.assert_close(found[name], gradient, atol=1e-5, rtol=1e-4)
