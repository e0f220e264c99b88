"""The cards of exported folders are those that the Hugging Face Hub reads."""

import pytest
from support.conversion import convert, refuses
from support.expressed import checkpoint_of
from support.translations import NORMS_FIRST, SHARED, write_translation

pytest_plugins = ["support.conversion"]
pytestmark = pytest.mark.journeys


def card_of(folder):
    """The card as the Hub's own library reads it."""
    hub = pytest.importorskip("huggingface_hub", reason="reads cards")
    return hub.ModelCard.load(str(folder / "README.md"))


def test_the_card_of_a_language_model_says_what_trained_it(transformers, tmp_path):
    target, path = "hf-llama", checkpoint_of(tmp_path / "ours", "grouped")
    (tmp_path / "ppl.txt").write_text("perplexity 3.2 on the test set\n")
    given = ["--scores", tmp_path / "ppl.txt", "--about", "Words by number.", "--verify"]
    convert("export", target, path, tmp_path / "numbers", *given)
    card = card_of(tmp_path / "numbers")
    assert card.data.library_name == "transformers" and card.data.license is None
    assert card.data.pipeline_tag == "text-generation" and "fairseq" in card.data.tags
    for words in (
        "# numbers",
        "--kv-heads 2",
        "--position-encoding rotary",
        "Words by number.",
        "perplexity 3.2 on the test set",
        "largest difference from fairseq: ",
        "LlamaForCausalLM",
        'AutoModelForCausalLM.from_pretrained("numbers")',
    ):
        assert words in card.text, words
    missing = tmp_path / "none.txt"
    refuses([f"--scores {missing}"], "export", target, path, tmp_path / "x", "--scores", missing)
    refuses(["--about"], "export", "onnx", path, tmp_path / "y", "--about", "Words.")


FIRST = ["--position-encoding", "sinusoidal", *SHARED, *NORMS_FIRST]


@pytest.mark.parametrize(
    "name, flags, tag, languages",
    [
        ("hf-m2m100", FIRST, "translation", ["en", "de"]),
        ("hf-remote-code", ["--position-encoding", "rotary"], "translation", ["en", "de"]),
        ("hf-roberta", [], "fill-mask", None),
        ("hf-roformer", ["topic"], "text-classification", None),
    ],
)
def test_the_card_names_task_and_languages(name, flags, tag, languages, transformers, tmp_path):
    if languages:
        path = write_translation(tmp_path / "ours", *flags)
    else:
        path = checkpoint_of(tmp_path / "ours", name[3:], heads=flags)
    convert("export", name, path, tmp_path / "theirs")
    card = card_of(tmp_path / "theirs")
    assert card.data.pipeline_tag == tag and card.data.language == languages
    assert ("trust_remote_code=True" in card.text) == (name == "hf-remote-code")
