"""The cards of exported folders are those that the Hugging Face Hub reads."""

import pytest
from support.conversion import convert, refuses
from support.expressed import checkpoint_of
from support.model_folders import NORMS_FIRST, SHARED, write_translation

pytest_plugins = ["support.conversion"]
pytestmark = pytest.mark.journeys

FIRST = ["--position-encoding", "sinusoidal", *SHARED, *NORMS_FIRST]


@pytest.mark.parametrize(
    "name, model, tag",
    [
        ("hf-llama", "grouped", "text-generation"),
        ("hf-m2m100", FIRST, "translation"),
        ("hf-remote-code", ["--position-encoding", "rotary"], "translation"),
        ("hf-roberta", "roberta", "fill-mask"),
        ("hf-roberta", "sentences", "text-classification"),
    ],
)
def test_the_card_names_task_and_languages(name, model, tag, tmp_path):
    pytest.importorskip("safetensors", reason="exporting needs the package")
    hub = pytest.importorskip("huggingface_hub", reason="reads cards")
    make = checkpoint_of if isinstance(model, str) else write_translation
    path = make(tmp_path / "ours", *([model] if isinstance(model, str) else model))
    (tmp_path / "ppl.txt").write_text("perplexity 3.2 on the test set\n")
    given = ["--scores", tmp_path / "ppl.txt", "--about", "Words by number."]
    convert("export", name, path, tmp_path / "theirs", *given)
    card = hub.ModelCard.load(str(tmp_path / "theirs" / "README.md"))
    languages = ["en", "de"] if tag == "translation" else None
    assert (card.data.pipeline_tag, card.data.language) == (tag, languages)
    assert ("trust_remote_code=True" in card.text) == (name == "hf-remote-code")
    assert "Words by number." in card.text and "perplexity 3.2 on the test set" in card.text
    missing = tmp_path / "none.txt"
    refuses([f"--scores {missing}"], "export", name, path, tmp_path / "x", "--scores", missing)
    refuses(["--about"], "export", "onnx", path, tmp_path / "y", "--about", "Words.")
