"""ModernBERT of transformers, in and out: windows, bases by layer, biases, heads, and refusals."""

import torch
from support.conversion import convert, load
from support.foreign_models import MODERN, trained, write_modernbert

from fairseq_posenc.exchange import native


@torch.no_grad()
def test_models_of_ours(transformers, tmp_path):
    """Biases, interleaved pairs, and the automatic class with its tokenizer."""
    three = {"encoder_layers": 3, "local_window": "200,4,4", "rotary_base": "500,100*2"}
    path = trained(tmp_path / "ours", **{**MODERN, **three}, no_bias=False)
    convert("export", "hf-modernbert", path, tmp_path / "out", "--verify")
    model = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "out").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    texts = tokenizer(["a b <mask> a " * 9, "b"], return_tensors="pt", padding=True)
    ours = native.load(str(path), str(path.parent / "dict.txt"))
    want, _ = ours(texts["input_ids"])
    real = texts["attention_mask"].bool()
    torch.testing.assert_close(model(**texts).logits[real], want[real], atol=1e-5, rtol=1e-5)
    assert model.config.layer_types == ["full_attention", *2 * ["sliding_attention"]]
    assert (model.config.norm_bias, model.config.attention_bias) == (True, True)


def test_older_versions_name_layers_and_bases_otherwise(tmp_path, out):
    changed = {"global_rope_theta": 700.0, "local_rope_theta": None, "local_attention": 6}
    source = write_modernbert(tmp_path / "source", **changed, global_attn_every_n_layers=2)
    convert("import", "hf-modernbert", source, out)
    model, _ = load(out)
    assert (model.args.rotary_base, model.args.local_window) == (700.0, "80,6")
