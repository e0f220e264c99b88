"""What transformers loads and saves again can be imported, and computes the same as before."""

import pytest
import torch
from support.causal_checkpoints import EXPRESSED as CAUSAL_MODELS
from support.causal_checkpoints import checkpoint_of
from support.conversion import convert
from support.foreign_models import trained
from support.translations import EXPRESSED as TRANSLATIONS
from support.translations import write_translation

from fairseq_posenc.checkpoints import loader
from fairseq_posenc.exchange import native
from fairseq_posenc.exchange.kinds import CAUSAL, MASKED, TRANSLATION

pytest_plugins = ["support.conversion"]

AUTO = {"posenc_lm": "CausalLM", "posenc_masked_lm": "MaskedLM", "posenc_transformer": "Seq2SeqLM"}


def written(folder, name):
    """A model of random weights: its format, its checkpoint and its kind."""
    if name in CAUSAL_MODELS:
        target, settings = CAUSAL_MODELS[name]
        return target, checkpoint_of(folder, settings), CAUSAL
    if name in TRANSLATIONS:
        target, flags = TRANSLATIONS[name]
        return target, write_translation(folder, *flags), TRANSLATION
    encodings = {"hf-roberta": "learned", "hf-roformer": "rotary"}
    return name, trained(folder, position_encoding=encodings[name]), MASKED


@pytest.mark.parametrize("name", "grouped gpt2 bart t5 hf-roberta".split())
@torch.no_grad()
def test_a_folder_that_transformers_saved_again_returns(name, transformers, tmp_path):
    target, path, kind = written(tmp_path / "ours", name)
    convert("export", target, path, tmp_path / "theirs")
    for auto in (f"AutoModelFor{AUTO[kind.arch]}", "AutoTokenizer"):
        part = getattr(transformers, auto).from_pretrained(tmp_path / "theirs")
        part.save_pretrained(tmp_path / "again")
    for folder in ("theirs", "again"):  # the name of a special symbol in a text is text
        tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / folder)
        ids = tokenizer(f"x{tokenizer.pad_token}", add_special_tokens=False)["input_ids"]
        assert tokenizer.pad_token_id not in ids and tokenizer.unk_token_id in ids
    convert("import", target, tmp_path / "again", tmp_path / "back", "--verify")
    symbols = (tmp_path / "back" / "dict.txt").read_text().split()[::2]
    known = {symbol for file in path.parent.glob("dict*txt") for symbol in file.read_text().split()}
    assert len(symbols) > 1 and set(symbols) <= known
    before = loader.load(str(path)).model
    after = native.load(
        str(tmp_path / "back" / "checkpoint.pt"), str(tmp_path / "back" / "dict.txt"), kind
    )
    tokens = torch.randint(4, 4 + len(symbols), (2, 20))
    given = [torch.tensor([20, 20]), tokens] if kind is TRANSLATION else []
    want, got = (model(tokens, *given)[0] for model in (before, after))
    torch.testing.assert_close(got, want, atol=5e-5, rtol=1e-5)
