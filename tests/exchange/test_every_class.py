"""In every class of transformers: the longest text, and the logits when it is saved again."""

import json

import pytest
import torch
from support.causal_checkpoints import EXPRESSED as CAUSAL_MODELS
from support.causal_checkpoints import checkpoint_of
from support.conversion import convert
from support.foreign_models import trained
from support.translations import EXPRESSED as TRANSLATIONS
from support.translations import SHARED, write_translation

pytest_plugins = ["support.conversion"]

MASKED_MODELS = {
    "hf-roberta": {"position_encoding": "learned", "num_segments": 0},
    "hf-roformer": {"position_encoding": "rotary"},
    "hf-modernbert": {
        **{"encoder_normalize_before": True, "skip_first_norm": True, "feed_forward": "geglu"},
        **{"attention": "local", "local_window": "80,8", "no_bias": True},
    },
}
REMOTE = {"sinusoidal": ["--position-encoding", "sinusoidal", *SHARED]}


def written(folder, name):
    """A model of random weights: its format, its checkpoint and its longest text."""
    if name in CAUSAL_MODELS:
        target, settings = CAUSAL_MODELS[name]
        return target, checkpoint_of(folder, settings), 200
    if name in REMOTE:
        return "hf-remote-code", write_translation(folder, *REMOTE[name]), 60
    if name in TRANSLATIONS:
        target, flags = TRANSLATIONS[name]
        return target, write_translation(folder, *flags), 60
    return name, trained(folder, **MASKED_MODELS[name]), 40


@pytest.mark.parametrize(
    "name",
    [*"llama neox bloom gpt2 bart mbart m2m100 t5".split(), *REMOTE, *MASKED_MODELS],
)
@torch.no_grad()
def test_a_truncated_text_is_as_long_as_the_model_takes_also_when_it_is_saved_again(
    name, transformers, tmp_path
):
    target, path, longest = written(tmp_path / "ours", name)
    convert("export", target, path, tmp_path / "theirs")
    settings = json.loads((tmp_path / "theirs" / "tokenizer_config.json").read_text())
    assert settings["model_max_length"] == longest
    if name == "hf-roformer":
        pytest.importorskip("rjieba", reason="RoFormer's tokenizer splits text by it")
    code = {"trust_remote_code": True} if name in REMOTE else {}
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "theirs", **code)
    batch = tokenizer(["a " * 300], truncation=True, return_tensors="pt")
    assert batch["input_ids"].shape == (1, longest)
    kind = {"hf-": "MaskedLM"}.get(name[:3], "CausalLM" if name in CAUSAL_MODELS else "Seq2SeqLM")
    auto = getattr(transformers, f"AutoModelFor{kind}")
    model = auto.from_pretrained(tmp_path / "theirs", **code).eval()
    batch.pop("token_type_ids", None)
    if kind == "Seq2SeqLM":
        batch["decoder_input_ids"] = batch["input_ids"]
    model.save_pretrained(tmp_path / "again")
    again = auto.from_pretrained(tmp_path / "again", **code).eval()
    assert torch.equal(again(**batch).logits, model(**batch).logits)


def test_a_pipeline_stops_at_the_last_position(transformers, tmp_path):
    """By default it writes 256 tokens, and the table of positions has 200 rows."""
    target, path, longest = written(tmp_path / "ours", "gpt2")
    convert("export", target, path, tmp_path / "theirs")
    write = transformers.pipeline("text-generation", str(tmp_path / "theirs"))
    (found,) = write("w1 w2", return_tensors=True, do_sample=False, eos_token_id=-1)
    assert len(found["generated_token_ids"]) == longest
