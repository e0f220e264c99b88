"""fairseq-posenc analyse of models whose layers have no one matrix of attention."""

import pytest

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.cli import main
from tests.analysis.test_positions import masked_lm_file

CHUNKS = ["--layer", "gated", "--gau-key-size", "8", "--gau-normaliser", "squared_relu"]


@pytest.mark.parametrize(
    "flags, words",
    [
        (["--funnel-stages", "1,1", "--encoder-layers", "4"], "--funnel-stages: layers of pooled"),
        ([*CHUNKS, "--gau-chunk", "4"], "--gau-chunk: chunks have matrices of their own"),
    ],
)
def test_layers_without_one_matrix_are_named(flags, words, tmp_path):
    _, path = masked_lm_file(tmp_path, "rotary", *flags)
    with pytest.raises(UsageError, match=words):
        main(["analyse", path, str(tmp_path / "text")])
