"""fairseq-posenc analyse of a model with --document-mask."""

import pytest

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.cli import main
from tests.analysis.test_positions import masked_lm_file
from tests.packs.packed_documents.packed_samples import MASK


def test_a_block_of_several_documents_has_no_one_matrix(tmp_path):
    _, path = masked_lm_file(tmp_path, "rotary", MASK)
    with pytest.raises(UsageError, match=f"{MASK}: a block has a matrix for each of its"):
        main(["analyse", path, str(tmp_path / "text")])
