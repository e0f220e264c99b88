"""A causal RoFormer of transformers as a language model here, and back."""

import re

import pytest
import torch
from support.commands import USER_DIR, succeed
from support.conversion import SYMBOLS, convert, foreign
from support.foreign_models import OURS

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.checkpoints.reading import load_file

NAME = "RoFormerForCausalLM"
TASK = ["--task", "language_modeling"]


@pytest.fixture(scope="module")
def scored(transformers, tmp_path_factory):
    """A model of transformers, the imported one, and data with its dictionary."""
    folder = tmp_path_factory.mktemp("scored")
    torch.manual_seed(3)
    original = foreign(transformers, NAME, folder / "source", is_decoder=True)
    with torch.no_grad():
        original.cls.predictions.bias[[0, 3]] = -20.0  # [PAD] and [CLS], which fairseq hides
    original.save_pretrained(folder / "source")
    convert("import", "hf-roformer", folder / "source", folder / "model", "--verify")
    (folder / "text").write_text("the 公园 ##s a b\nb b the a\n公园 a\n", encoding="utf-8")
    flags = ["--only-source", "--srcdict", folder / "model" / "dict.txt", "--workers", "1"]
    text = ["--trainpref", folder / "text", "--validpref", folder / "text"]
    succeed(
        "preprocess", *flags, *text, "--testpref", folder / "text", "--destdir", folder / "data"
    )
    return original, folder


def test_a_transformers_that_hides_no_later_tokens_is_named(transformers, tmp_path, monkeypatch):
    """Make RoFormer see later tokens, as transformers 5.9 to 5.17 do."""
    module = pytest.importorskip("transformers.models.roformer.modeling_roformer")
    if not hasattr(module, "create_causal_mask"):
        pytest.skip("this transformers makes the mask otherwise")

    def both_ways(*args, past_key_values=None, **kwargs):
        return module.create_bidirectional_mask(*args, **kwargs)

    monkeypatch.setattr(module, "create_causal_mask", both_ways)
    foreign(transformers, NAME, tmp_path / "source", is_decoder=True)
    with pytest.raises(UsageError, match="reads later tokens.*transformers 5.18"):
        convert("import", "hf-roformer", tmp_path / "source", tmp_path / "ours", "--verify")
    assert not (tmp_path / "ours").exists()


def words_of(folder):
    return [line.split() for line in (folder / "text").read_text(encoding="utf-8").splitlines()]


def test_interactive_continues_as_they_do(scored):
    """Greedy search, one new token after the other."""
    original, folder = scored
    prompts = [words[:2] for words in words_of(folder)]
    flags = ["--path", folder / "model" / "checkpoint.pt", "--cpu", "--beam", "1"]
    lines = "".join(" ".join(words) + "\n" for words in prompts)
    found = succeed(
        "interactive", folder / "data", *USER_DIR, *TASK, *flags, "--max-len-b", "12", stdin=lines
    ).hypotheses()
    for number, prompt in enumerate(prompts):
        ids = [SYMBOLS.index(word) for word in ["[SEP]", *prompt]]
        while len(ids) <= 12:
            with torch.no_grad():
                logits = original(input_ids=torch.tensor([ids])).logits[0, -1]
            ids.append(int(logits.argmax()))
            if SYMBOLS[ids[-1]] == "[SEP]":
                ids.pop()
                break
        ((_, text),) = found[number]
        want = [OURS.get(SYMBOLS[i], SYMBOLS[i]) for i in ids[1:]]
        assert text.split() == want and len(want) > len(prompt)


def test_training_goes_on_from_it_with_the_printed_flags(scored, tmp_path, capsys):
    _, folder = scored
    convert("import", "hf-roformer", folder / "source", tmp_path / "model")
    shape = re.findall("further: (.*)", capsys.readouterr().out)[0].split()
    assert "(with" not in shape  # no flag has to be turned off
    checkpoint = tmp_path / "model" / "checkpoint.pt"
    flags = ["--cpu", "--num-workers", "0", "--max-tokens", "64", "--max-epoch", "1", "--lr", "0"]
    flags += ["--optimizer", "sgd", "--save-dir", tmp_path / "run"]
    succeed(
        "train", folder / "data", *USER_DIR, *TASK, *shape, *flags, "--restore-file", checkpoint
    )
    start = load_file(checkpoint)["model"]
    trained = load_file(tmp_path / "run" / "checkpoint_last.pt")["model"]
    for name, value in start.items():
        assert torch.equal(trained[name], value), name
