"""RoBERTa of transformers, in and out: logits, labels, tokenizers, and refusals by name."""

import json

import pytest
import torch
from fairseq import models
from support.commands import shape
from support.conversion import SYMBOLS, convert, load, refuses, reload, save_folder
from support.foreign_models import OURS, SHAPE, trained
from support.helpers import parse
from support.model_folders import Task, dictionary, write_state
from support.vocabularies import carried, write_vocabulary

from fairseq_posenc.checkpoints.reading import load_file, write_checkpoint
from fairseq_posenc.exchange import native
from fairseq_posenc.exchange.kinds import PAD

LEARNED = {"position_encoding": "learned"}
TINY = {
    "vocab_size": len(SYMBOLS),
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 41,
    "pad_token_id": 0,
    "initializer_range": 0.3,
}
VARIANTS = [
    ("RobertaForMaskedLM", {}, None),
    ("RobertaForMaskedLM", {"tie_word_embeddings": False, "type_vocab_size": 1}, None),
    (
        "RobertaForSequenceClassification",
        {"id2label": {0: "no", 1: "yes", 2: "perhaps"}, "hidden_act": "relu"},
        "sentence_classification_head",
    ),
    ("RobertaForTokenClassification", {"num_labels": 5}, "token_classification_head"),
]


def their_model(transformers, name, folder, **config):
    """A random model of transformers, saved with a vocabulary."""
    model = getattr(transformers, name)(transformers.RobertaConfig(**{**TINY, **config})).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    write_vocabulary(folder)
    return model


@pytest.mark.parametrize("name, config, head", VARIANTS, ids=lambda value: str(value)[:40])
@torch.no_grad()
def test_there_and_back(transformers, tmp_path, capsys, name, config, head):
    """Logits and predictions are the same at each step, in a batch padded on either side."""
    source, ours, back = (tmp_path / part for part in ("source", "ours", "back"))
    original = their_model(transformers, name, source, **config)
    convert("import", "hf-roberta", source, ours, "--verify")
    checkpoint = ours / "checkpoint.pt"
    convert("export", "hf-roberta", checkpoint, back, "--verify", *carried(source))
    assert capsys.readouterr().out.count(f"largest difference from {name}") == 2
    returned = reload(transformers, name, back)
    model, dictionary = load(ours)
    order = torch.tensor([dictionary.index(OURS.get(s, s)) for s in SYMBOLS])
    text, short = [3, 6, 8, 5, 7, 2, 1, 9, 4], [3, 10, 4]
    gap = [0] * (len(text) - len(short))
    ids = torch.tensor([text, short + gap, gap + short])
    kinds = {"attention_mask": ids.ne(0).long()}
    labels = torch.zeros_like(ids)
    if config.get("type_vocab_size") != 1:
        labels = ids.gt(6).long()
        kinds["token_type_ids"] = labels
    want, again = (each(input_ids=ids, **kinds).logits for each in (original, returned))
    have, _ = model(order[ids], segment_labels=labels, classification_head_name=head)
    have = have if head else have[..., order]
    real = ids.ne(0)
    if want.dim() == 2:  # a padded [CLS] on the left is none of fairseq's
        real = torch.tensor([True, True, False])
    for logits in (have, again):
        torch.testing.assert_close(logits[real], want[real], atol=1e-5, rtol=1e-5)
        assert torch.equal(logits[real].argmax(-1), want[real].argmax(-1))
    assert returned.config.id2label == original.config.id2label
    for key, value in original.state_dict().items():  # rows are those of the tokenizer again
        first = 1 if "position_embeddings" in key else 0  # the padding's position does not matter
        same = torch.equal(returned.state_dict()[key][first:], value[first:])
        # one segment becomes part of the positions, and a bias of its own that of the output
        folded = "_embeddings" in key or key == "lm_head.bias"
        assert same or (folded and "type_vocab_size" in config), key


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    """A classifier of ours, and the data with the names of its classes."""
    folder = tmp_path_factory.mktemp("classifier")
    path = trained(folder / "ours", "topic", **LEARNED, num_segments=2)
    (folder / "data" / "label").mkdir(parents=True)
    (folder / "data" / "label" / "dict.txt").write_text("sport 4\nart 3\nfood 2\n")
    return path, folder / "data"


def test_labels_are_those_of_the_data(transformers, tmp_path, classifier):
    path, data = classifier
    convert("export", "hf-roberta", path, tmp_path / "out", "--verify", "--data", data)
    config = transformers.AutoConfig.from_pretrained(tmp_path / "out")
    assert config.id2label == {0: "sport", 1: "art", 2: "food"}
    name = "RobertaForSequenceClassification"
    convert("import", "hf-roberta", tmp_path / "out", tmp_path / "back", "--verify")
    assert (tmp_path / "back" / "label" / "dict.txt").read_text() == "sport 1\nart 1\nfood 1\n"
    model = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "out")
    assert type(model).__name__ == name
    (data / "label" / "dict.txt").write_text("sport 4\n")
    words = ["names 1 labels", "3 classes"]
    refuses(words, "export", "hf-roberta", path, tmp_path / "none", "--data", data)


@torch.no_grad()
def test_text_goes_in_as_in_fairseq(transformers, tmp_path, classifier):
    """The written tokenizer gives the numbers, segments and padding of fairseq's batches."""
    path, _ = classifier
    convert("export", "hf-roberta", path, tmp_path / "out")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    batch = tokenizer([["a b a", "b b"], ["a", "unheard"]], return_tensors="pt", padding=True)
    a, b, unknown = 4, 5, 3
    rows = [[0, a, b, a, 2, 2, b, b, 2], [0, a, 2, 2, unknown, 2, PAD, PAD, PAD]]
    assert batch["input_ids"].tolist() == rows
    model = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "out")
    ours = native.load(str(path), str(path.parent / "dict.txt"))
    want, _ = ours(torch.tensor(rows), batch["token_type_ids"], classification_head_name="topic")
    torch.testing.assert_close(model.eval()(**batch).logits, want, atol=1e-5, rtol=1e-5)
    assert tokenizer.decode(tokenizer("a <mask> b")["input_ids"]) == "<s> a <mask> b </s>"
    assert tokenizer.model_max_length == SHAPE["max_positions"]


def test_a_model_folder_is_not_written_over(tmp_path):
    said = ["is what the result is made from; give another name"]
    refuses(said, "export", "hf-roberta", tmp_path, tmp_path / ".")


def test_tokenizers_of_others_are_refused(tmp_path, out, classifier):
    path, _ = classifier
    other = save_folder(tmp_path / "other", {}, {}, SYMBOLS)
    words = [f"--subword-file {other}", "dict.txt", "give the tokenizer"]
    refuses(words, "export", "hf-roberta", path, out, *carried(other))
    words = ["--subwords transformers", "hf-roberta", "no effect on hf-roformer"]
    refuses(words, "export", "hf-roformer", path, out, "--subwords", "transformers")


def test_models_of_fairseq_itself_are_taken(transformers, tmp_path, capsys):
    """``--verify`` runs fairseq's own RoBERTa."""
    symbols = dictionary([f"w{number}" for number in range(20)])
    symbols.save(str(tmp_path / "dict.txt"))
    symbols.add_symbol("<mask>")
    sizes = ["--tokens-per-sample", "40", "--max-positions", "40", *shape(2, 16, 24, 2, "encoder")]
    cfg = parse("roberta_base", *sizes, task="masked_lm")
    model = models.build_model(cfg.model, Task(symbols, symbols, cfg.task))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    write_state(tmp_path, cfg, model)
    convert("export", "hf-roberta", tmp_path / "model.pt", tmp_path / "out", "--verify")
    assert "difference from RobertaForMaskedLM of transformers: 0.00e+00" in capsys.readouterr().out


def test_a_regression_says_so(transformers, tmp_path, classifier):
    path, data = classifier
    state = load_file(path)
    state["cfg"]["task"] = {"_name": "sentence_prediction", "regression_target": True}
    other = tmp_path / "regression.pt"
    write_checkpoint(state, str(other))
    vocab = path.parent / "dict.txt"
    out = tmp_path / "out"
    convert("export", "hf-roberta", other, out, "--vocab", vocab, "--data", data)
    config = json.loads((out / "config.json").read_text())
    assert config["problem_type"] == "regression" and config["id2label"]["0"] == "LABEL_0"
