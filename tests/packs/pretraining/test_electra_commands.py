"""Replaced-token detection through fairseq's command lines."""

from support.commands import read, train
from support.masked_lm_runs import CLASSIFY, MASKED, SHAPE
from support.warm_starts import FRESH

pytest_plugins = ["support.toy", "support.masked_lm_runs"]


def test_electra_pretrains_resumes_and_is_fine_tuned(corpora, tmp_path):
    flags = ["--arch", "roformer_electra_tiny", *SHAPE, "--generator-size", "0.5", *MASKED]
    flags += ["--criterion", "replaced_token_detection"]
    pre, fine = tmp_path / "pre", tmp_path / "fine"
    found = train(corpora.text, pre, *flags)
    logged = found.entries("valid")[0]
    assert 0 < float(logged["valid_generator_loss"]) < 20
    assert 0 <= float(logged["valid_recall"]) <= 100
    assert "update 1" not in train(corpora.text, pre, *flags, "--max-epoch", "2").losses()
    source = ["--restore-file", pre / "checkpoint_last.pt", *FRESH]
    classify = ["--arch", "posenc_masked_lm", *CLASSIFY, "--num-classes", "2"]
    train(corpora.pairs, fine, *classify, "--max-positions", "32", "--max-update", "0", *source)
    (before, _), (after, settings) = (read(f / "checkpoint_last.pt") for f in (pre, fine))
    assert settings["position_encoding"] == "rotary" and "generator_size" not in settings
    assert not any(key.startswith("generator") for key in after)
    assert any(key.startswith("generator") for key in before)
