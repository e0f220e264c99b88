"""The flags of fairseq's transformer: stock and ours train the same losses with them."""

import pytest
from commands import SMALL, generate, train

pytest_plugins = ["toy"]

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
POSITION_FLAGS = {
    "learned": ["--encoder-learned-pos", "--decoder-learned-pos"],
    "learned in the decoder": ["--decoder-learned-pos"],
    "none": ["--no-token-positional-embeddings"],
}


def same_as_stock(flags, toy, tmp_path):
    """Losses of stock, after checking that ours with the same flags has the same."""
    flags = [*SMALL, *flags]
    stock = train(toy.joined, tmp_path / "stock", "--arch", "transformer", *flags).losses()
    ours = train(toy.joined, tmp_path / "ours", "--arch", "posenc_transformer", *flags).losses()
    assert len(ours) == 6
    assert ours == pytest.approx(stock, abs=2e-3)


@pytest.mark.parametrize("name", FLAGS)
def test_a_flag_does_what_it_does_to_stock(name, toy, tmp_path):
    same_as_stock(FLAGS[name], toy, tmp_path)
    roformer = ["--arch", "roformer_tiny", *SMALL, *FLAGS[name]]
    train(toy.joined, tmp_path / "roformer", *roformer)
    found = generate(toy.joined, tmp_path / "roformer" / "checkpoint_last.pt").hypotheses()
    assert sorted(found) == list(range(24))


@pytest.mark.parametrize("name", POSITION_FLAGS)
def test_a_position_flag_does_what_it_does_to_stock(name, toy, tmp_path):
    same_as_stock(POSITION_FLAGS[name], toy, tmp_path)
