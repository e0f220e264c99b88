"""The flags of fairseq's transformer: stock and ours train the same losses with them."""

import pytest
from support.commands import NO_DROPOUT, SMALL, generate, train

pytest_plugins = ["support.toy"]

SIZES = ["--decoder-embed-dim", "24", "--decoder-ffn-embed-dim", "40", "--decoder-layers", "1"]
FLAGS = {
    "none": [],
    "activation": ["--activation-fn", "gelu_accurate"],
    "pre-norm": ["--encoder-normalize-before", "--decoder-normalize-before"],
    "pre-norm without the last norm": ["--decoder-normalize-before", "--no-decoder-final-norm"],
    "tied output": ["--share-decoder-input-output-embed"],
    "tied embeddings": ["--share-all-embeddings"],
    "embedding norm": ["--layernorm-embedding", "--no-scale-embedding"],
    "decoder sizes": [*SIZES, "--decoder-attention-heads", "4", "--decoder-output-dim", "12"],
    "no cross-attention": ["--no-cross-attention"],
    "LayerDrop": ["--encoder-layerdrop", "0.5", "--decoder-layerdrop", "0.5"],
    "adaptive softmax": [
        *("--criterion", "adaptive_loss", "--adaptive-softmax-cutoff", "8,16"),
        *("--adaptive-softmax-dropout", "0.1", "--ddp-backend", "legacy_ddp"),
    ],
    "lengths": ["--max-source-positions", "12", "--max-target-positions", "13"],
    "checkpointed activations": ["--checkpoint-activations"],
    "offloaded activations": ["--offload-activations"],
    "half precision": ["--memory-efficient-fp16"],
}
TOGETHER = [
    ["activation", "pre-norm", "tied output", "LayerDrop", "lengths", "checkpointed activations"],
    ["tied embeddings", "embedding norm", "half precision", "offloaded activations"],
    ["pre-norm without the last norm", "decoder sizes", "adaptive softmax"],
    ["no cross-attention"],
    ["tied embeddings", "adaptive softmax"],
]
POSITION_FLAGS = {
    "learned": ["--encoder-learned-pos", "--decoder-learned-pos"],
    "learned in the decoder": ["--decoder-learned-pos"],
    "none": ["--no-token-positional-embeddings"],
}


@pytest.mark.parametrize("flags", [*FLAGS.values(), *POSITION_FLAGS.values()], ids=" ".join)
def test_a_flag_does_what_it_does_to_stock(flags, toy, tmp_path):
    flags = [*SMALL, *NO_DROPOUT, *flags]
    stock = train(toy.joined, tmp_path / "stock", "--arch", "transformer", *flags).losses()
    ours = train(toy.joined, tmp_path / "ours", "--arch", "posenc_transformer", *flags).losses()
    assert len(ours) == 6
    assert ours == pytest.approx(stock, abs=2e-3)


@pytest.mark.parametrize("names", TOGETHER, ids=" ".join)
def test_a_roformer_takes_the_flags_of_stock(names, toy, tmp_path):
    flags = [flag for name in names for flag in FLAGS[name]]
    run = train(toy.joined, tmp_path, "--arch", "roformer_tiny", *SMALL, *flags)
    assert len(run.losses()) == 6
    found = generate(toy.joined, tmp_path / "checkpoint_last.pt").hypotheses()
    assert sorted(found) == list(range(24))
