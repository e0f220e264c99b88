"""In every class of transformers: the longest text, and what it saves again is the same."""

import json

import pytest
import torch
from support.causal_checkpoints import EXPRESSED as CAUSAL_MODELS
from support.causal_checkpoints import checkpoint_of
from support.conversion import convert
from support.foreign_models import MODERN, trained
from support.translations import EXPRESSED as TRANSLATIONS
from support.translations import SHARED, write_translation

from fairseq_posenc.checkpoints import loader
from fairseq_posenc.exchange import native
from fairseq_posenc.models.kinds import CAUSAL, MASKED, TRANSLATION

MASKED_MODELS = {
    "hf-roberta": {"position_encoding": "learned", "num_segments": 0},
    "hf-roformer": {"position_encoding": "rotary"},
    "hf-modernbert": {**MODERN, "local_window": "80,8", "no_bias": True},
}
REMOTE = {"sinusoidal": ["--position-encoding", "sinusoidal", *SHARED]}
CLASSES = {CAUSAL.name: "CausalLM", MASKED.name: "MaskedLM", TRANSLATION.name: "Seq2SeqLM"}


def written(folder, name):
    """A model of random weights: its format, its checkpoint, its kind and its longest text."""
    if name in CAUSAL_MODELS:
        target, settings = CAUSAL_MODELS[name]
        return target, checkpoint_of(folder, settings), CAUSAL, 200
    if name in MASKED_MODELS:
        return name, trained(folder, **MASKED_MODELS[name]), MASKED, 40
    target, flags = {**TRANSLATIONS, "sinusoidal": ("hf-remote-code", REMOTE.get(name))}[name]
    return target, write_translation(folder, *flags), TRANSLATION, 60


def logits_of(transformers, folder, kind, longest, saved=None, **code):
    """Those of a text that is truncated to the longest; the model is saved again, too."""
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    assert settings["model_max_length"] == longest
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **code)
    batch = tokenizer(["a " * 300], truncation=True, return_tensors="pt")
    assert batch["input_ids"].shape == (1, longest)
    ids = tokenizer(f"x{tokenizer.pad_token}", add_special_tokens=False)["input_ids"]
    assert tokenizer.pad_token_id not in ids  # the name of a special symbol in a text is text
    auto = getattr(transformers, f"AutoModelFor{CLASSES[kind.name]}")
    model = auto.from_pretrained(folder, **code).eval()
    batch.pop("token_type_ids", None)
    if kind is TRANSLATION:
        batch["decoder_input_ids"] = batch["input_ids"]
    if saved:
        model.save_pretrained(saved)
        tokenizer.save_pretrained(saved)
    return model(**batch).logits


@pytest.mark.parametrize(
    "name", [*"grouped neox bloom gpt2 bart mbart m2m100 t5".split(), *REMOTE, *MASKED_MODELS]
)
@torch.no_grad()
def test_what_is_saved_again_computes_the_same_and_returns(name, transformers, tmp_path):
    target, path, kind, longest = written(tmp_path / "ours", name)
    convert("export", target, path, tmp_path / "theirs")
    if name == "hf-roformer":
        pytest.importorskip("rjieba", reason="RoFormer's tokenizer splits text by it")
    code = {"trust_remote_code": True} if name in REMOTE else {}
    given = (kind, longest, tmp_path / "again")
    first = logits_of(transformers, tmp_path / "theirs", *given, **code)
    again = logits_of(transformers, tmp_path / "again", kind, longest, **code)
    assert torch.equal(again, first)
    if name in REMOTE:
        return
    convert("import", target, tmp_path / "again", tmp_path / "back", "--verify")
    dictionary = tmp_path / "back" / "dict.txt"
    symbols = dictionary.read_text().split()[::2]
    known = {symbol for file in path.parent.glob("dict*txt") for symbol in file.read_text().split()}
    assert len(symbols) > 1 and set(symbols) <= known
    before = loader.load(str(path)).model
    after = native.load(str(tmp_path / "back" / "checkpoint.pt"), str(dictionary), kind)
    tokens = torch.randint(4, 4 + len(symbols), (2, 20))
    given = [torch.tensor([20, 20]), tokens] if kind is TRANSLATION else []
    want, got = (model(tokens, *given)[0] for model in (before, after))
    torch.testing.assert_close(got, want, atol=5e-5, rtol=1e-5)


def test_a_pipeline_stops_at_the_last_position(transformers, tmp_path):
    """By default it writes 256 tokens, and the table of positions has 200 rows."""
    target, path, _, longest = written(tmp_path / "ours", "gpt2")
    convert("export", target, path, tmp_path / "theirs")
    write = transformers.pipeline("text-generation", str(tmp_path / "theirs"))
    (found,) = write("w1 w2", return_tensors=True, do_sample=False, eos_token_id=-1)
    assert len(found["generated_token_ids"]) == longest
