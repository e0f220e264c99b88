"""--document-mask in models of the pack pretraining."""

import pytest
import torch
from support.helpers import VOCABULARY
from support.masked_language_models import SMALL, build

from tests.packs.packed_documents.packed_samples import EOS, MASK, packed

electra = pytest.importorskip("fairseq_posenc.packs.pretraining.electra")


@torch.no_grad()
def test_separators_that_a_generator_writes_end_no_document(monkeypatch):
    """ELECTRA's discriminator has the documents of the original tokens."""
    flags = ["--position-encoding", "rotary", *SMALL, "--generator-size", "0.5", MASK]
    model, tokens = build("posenc_electra", *flags), packed(VOCABULARY.bos())
    monkeypatch.setattr(electra, "sample_tokens", lambda *a, **k: torch.tensor([EOS]))
    asked = torch.zeros_like(tokens, dtype=torch.bool)
    asked[0, 2] = True  # in the first document, of six tokens
    before = model(tokens, masked_tokens=asked)[1]["replaced"][0]
    tokens[0, 4] = 9
    after = model(tokens, masked_tokens=asked)[1]["replaced"][0]
    changed = before.ne(after)
    assert changed[:6].all() and not changed[6:].any()
