"""RoFormer of transformers, in and out, also as a language model, and its stored outputs."""

import pytest
import torch
from support.conversion import (
    convert,
    foreign,
    imported_logits,
    reference_folder,
    refuses,
    reload,
)
from support.foreign_models import trained

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.checkpoints.reading import load_file
from fairseq_posenc.exchange.huggingface.roformer import ROFORMER, sine_table

TABLE = "roformer.encoder.embed_positions.weight"


@pytest.mark.parametrize(
    "name, safe", [("hf_roformer_mlm", True), ("hf_roformer_mlm", False), ("hf_roformer_cls", True)]
)
def test_stored_outputs(golden, tmp_path, name, safe):
    """Logits that transformers computed on another day; needs no transformers."""
    expected, out = golden(name), tmp_path / "out"
    table = {TABLE: expected["outputs"]["embed_positions"]}
    torch.testing.assert_close(sine_table(*table[TABLE].shape), table[TABLE], atol=1e-6, rtol=0)
    source = reference_folder(tmp_path / "source", expected, safe, **table)
    convert("import", "hf-roformer", source, out)
    head = "sentence_classification_head" if "cls" in name else None
    for batch, inputs in expected["inputs"].items():
        want = expected["outputs"][f"logits_{batch}"]
        want = want if head else want[inputs["attention_mask"].bool()]
        assert inputs["token_type_ids"].any()
        for labelled in (True, False):  # the model finds the second text of a pair itself
            have = imported_logits(out, expected["meta"]["symbols"], inputs, head, labelled)
            torch.testing.assert_close(have, want, atol=5e-5, rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", None])
def test_rounded_and_missing_tables_of_sines(transformers, tmp_path, monkeypatch, capsys, dtype):
    """They are right imports; one with another base is found."""
    source, out = tmp_path / "source", tmp_path / "out"
    model = foreign(transformers, "RoFormerForMaskedLM", source, max_position_embeddings=200)
    if dtype is None:
        safetensors = pytest.importorskip("safetensors.torch")
        weights = safetensors.load_file(source / "model.safetensors")
        del weights[TABLE]
        safetensors.save_file(weights, source / "model.safetensors", metadata={"format": "pt"})
    else:
        model.to(getattr(torch, dtype)).save_pretrained(source)
    convert("import", "hf-roformer", source, out, "--verify")
    said = "that the file lacks" if dtype is None else "computed in float32, not read from the file"
    assert said in capsys.readouterr().out
    monkeypatch.setitem(ROFORMER.always, "rotary_base", 1000.0)
    words = ["largest difference", "0.0001", "nothing was written"]
    refuses(words, "import", "hf-roformer", source, tmp_path / "wrong", "--verify")


@pytest.mark.parametrize("kind", ["Sequence", "Token"])
def test_names_of_classes(transformers, tmp_path, kind):
    """They come as label/dict.txt, and go out again; numbers alone and spaces do not."""
    name, names = f"RoFormerFor{kind}Classification", {0: "B-PER", 1: "I-PER", 2: "O"}
    foreign(transformers, name, tmp_path / "source", id2label=names)
    convert("import", "hf-roformer", tmp_path / "source", tmp_path / "ours", "--verify")
    labels = tmp_path / "ours" / "label" / "dict.txt"
    assert labels.read_text() == "B-PER 1\nI-PER 1\nO 1\n"
    convert("export", "hf-roformer", tmp_path / "ours" / "checkpoint.pt", tmp_path / "back")
    assert reload(transformers, name, tmp_path / "back").config.id2label == names
    for number, others in enumerate(({0: "a b", 1: "c"}, {0: "LABEL_0", 1: "LABEL_1"})):
        source, ours = tmp_path / f"source {number}", tmp_path / f"ours {number}"
        foreign(transformers, name, source, id2label=others)
        convert("import", "hf-roformer", source, ours)
        assert not (ours / "label").exists()


def test_heads(transformers, tmp_path):
    checkpoint = trained(tmp_path / "ours", "one", "two", pooler_activation_fn="gelu")
    arguments = ("export", "hf-roformer", checkpoint, tmp_path / "out", "--verify")
    refuses(["several heads, one, two", "--head lm"], *arguments)
    refuses(["--head three", "one, two"], *arguments, "--head", "three")
    convert(*arguments, "--head", "two")
    model = reload(transformers, "RoFormerForSequenceClassification", tmp_path / "out")
    state = load_file(checkpoint)["model"]
    assert torch.equal(
        model.classifier.out_proj.weight, state["classification_heads.two.out_proj.weight"]
    )
    convert(*arguments, "--head", "lm")
    reload(transformers, "RoFormerForMaskedLM", tmp_path / "out")


def test_symbols_they_reserve(tmp_path):
    checkpoint = trained(tmp_path / "ours")
    (tmp_path / "ours" / "dict.txt").write_text("a 2\n[SEP] 1\n")
    words = ["dict.txt", "'[SEP]'", "reserves"]
    refuses(words, "export", "hf-roformer", checkpoint, tmp_path / "out")


CAUSAL = "RoFormerForCausalLM"


def test_a_transformers_that_hides_no_later_tokens_is_named(transformers, tmp_path, monkeypatch):
    """Make RoFormer see later tokens, as transformers 5.9 to 5.17 do."""
    module = pytest.importorskip("transformers.models.roformer.modeling_roformer")
    if not hasattr(module, "create_causal_mask"):
        pytest.skip("this transformers makes the mask otherwise")

    def both_ways(*args, past_key_values=None, **kwargs):
        return module.create_bidirectional_mask(*args, **kwargs)

    monkeypatch.setattr(module, "create_causal_mask", both_ways)
    foreign(transformers, CAUSAL, tmp_path / "source", is_decoder=True)
    with pytest.raises(UsageError, match="reads later tokens.*transformers 5.18"):
        convert("import", "hf-roformer", tmp_path / "source", tmp_path / "ours", "--verify")
    assert not (tmp_path / "ours").exists()
