"""Exported models write what fairseq writes for a text; those of fairseq itself are taken, too."""

import contextlib
import io

import pytest
import torch
from fairseq import models
from support.commands import shape
from support.conversion import convert
from support.expressed import EXPRESSED, WORDS, checkpoint_of
from support.foreign_models import table_of
from support.helpers import parse
from support.model_folders import Task, dictionary, write_state
from support.translations import NORMS_FIRST, SHARED, write_translation
from support.vocabularies import learn_pieces

from fairseq_posenc.checkpoints import loader
from fairseq_posenc.exchange import native
from fairseq_posenc.models.kinds import CAUSAL, PAD
from fairseq_posenc.serving.preparation import Preparation, Text
from fairseq_posenc.serving.translate import Beam
from fairseq_posenc.serving.translation import FairseqEngine


@torch.no_grad()
def continued(model, tokens, number):
    """Greedy continuations of our model, computed anew for every token, without padding."""
    for _ in range(number):
        logits = model(tokens)[0][:, -1]
        logits[:, PAD] = float("-inf")
        tokens = torch.cat((tokens, logits.argmax(-1, keepdim=True)), dim=1)
    return tokens


@pytest.mark.parametrize("name", ["grouped", "yarn", "share", "bloom", "gpt2"])
def test_texts_are_continued_alike(name, transformers, tmp_path):
    """In a batch padded in front, beyond the length in training, and by default to the longest."""
    path, theirs = checkpoint_of(tmp_path / "ours", name), tmp_path / "theirs"
    convert("export", EXPRESSED[name].target, path, theirs)
    ours = native.load(str(path), str(path.parent / "dict.txt"), CAUSAL)
    model = transformers.AutoModelForCausalLM.from_pretrained(theirs).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(theirs, padding_side="left")
    texts = ["w1 w2 w39 elsewhere", "w7", " ".join(WORDS)]
    symbols = native.read_native(str(path), None).symbols
    batch = tokenizer(texts, return_tensors="pt", padding=True)
    batch.pop("token_type_ids", None)
    known = {"eos_token_id": -1, "pad_token_id": PAD, "suppress_tokens": [PAD]}
    together = model.generate(**batch, max_new_tokens=12, do_sample=False, **known)
    for text, row in zip(texts, together):
        numbers = [symbols.index(word) if word in symbols else 3 for word in text.split()]
        want = continued(ours, torch.tensor([[2, *numbers]]), 12)[0]
        assert row[len(row) - len(want) :].tolist() == want.tolist()
    if name == "gpt2":  # the table has 80 rows, and a pipeline writes 256 tokens by default
        write = transformers.pipeline("text-generation", str(theirs))
        (found,) = write("w1 w2", return_tensors=True, do_sample=False, eos_token_id=-1)
        assert len(found["generated_token_ids"]) == 80


def test_raw_text_is_split_and_computed_as_in_fairseq(transformers, tmp_path):
    """Symbols of the subwords that dict.txt lacks are <unk>, and never written."""
    texts = ["a cab had a bad dab", "bad cad", "a hag bags a cab", "dada"]
    file = str(learn_pieces(tmp_path / "m", texts * 9, vocab_size=14))
    preparation = Preparation(Text(subwords="sentencepiece", subword_file=file))
    lines = [preparation.source(text) for text in texts]
    lacking = lines[2][-1]
    words = sorted({symbol for line in lines for symbol in line} - {lacking})
    path, theirs = checkpoint_of(tmp_path / "ours", "grouped", words), tmp_path / "theirs"
    given = ["--subwords", "sentencepiece", "--subword-file", file, "--verify"]
    convert("export", "hf-llama", path, theirs, *given)
    model = transformers.AutoModelForCausalLM.from_pretrained(theirs).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(theirs)
    ours = native.load(str(path), str(path.parent / "dict.txt"), CAUSAL)
    symbols = native.read_native(str(path), None).symbols
    number = {symbol: index for index, symbol in enumerate(symbols)}
    for text, line in zip(texts, lines):
        tokens = torch.tensor([[2, *(number.get(symbol, 3) for symbol in line)]])
        read = tokenizer(text, return_tensors="pt")["input_ids"]
        assert read.where(read < len(number), torch.tensor(3)).tolist() == tokens.tolist()
        have = model(read).logits[..., : len(number)]
        torch.testing.assert_close(have, ours(tokens)[0], atol=1e-5, rtol=1e-5)
    written = model.generate(read, max_new_tokens=20, do_sample=False, eos_token_id=-1)
    assert written.size(1) == read.size(1) + 20 and written.max() < len(number)
    convert("import", "hf-llama", theirs, tmp_path / "back", "--verify")  # without these symbols
    assert (tmp_path / "back" / "dict.txt").read_text() == (path.parent / "dict.txt").read_text()


@pytest.mark.parametrize("name", ["unscaled", "mbart", "m2m100", "swiglu"])
def test_translations_are_the_same(name, transformers, tmp_path):
    """The longest text is longer than any in a batch of training would be."""
    texts = ["w1 w2 w39 elsewhere w3", "w7", " ".join(WORDS + WORDS[:18])]
    path, theirs = checkpoint_of(tmp_path / "ours", name), tmp_path / "theirs"
    convert("export", EXPRESSED[name].target, path, theirs)
    loaded = loader.load(str(path))
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(theirs).eval()
    assert f"{type(model).__name__} of transformers" == table_of(EXPRESSED[name].target).name
    tokenizer = transformers.AutoTokenizer.from_pretrained(theirs)
    batch = tokenizer(texts, return_tensors="pt", padding=True)
    symbols = loaded.task.target_dictionary
    for beam in (1, 4):
        settings = Beam(beam, 1.0, 1, 200, 2000)
        found = FairseqEngine(loaded).translate([t.split() for t in texts], [[]] * 3, settings)
        ours = [hypotheses[0].tokens for hypotheses in found]
        rows = model.generate(**batch, num_beams=beam, do_sample=False).tolist()
        assert [[symbols[n] for n in row if n not in (2, PAD)] for row in rows] == ours
        assert beam > 1 or max(map(len, ours)) > 50  # models of random weights rarely end


LEARNED = ["--encoder-learned-pos", "--decoder-learned-pos", "--layernorm-embedding"]


@pytest.mark.parametrize("target, flags", [("hf-m2m100", NORMS_FIRST), ("hf-bart", LEARNED)])
def test_translation_models_of_fairseq_itself_are_taken(target, flags, transformers, tmp_path):
    """They have a table of sinusoids by default, or a learned one."""
    path = write_translation(tmp_path / "ours", *flags, *SHARED, arch="transformer")
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        convert("export", target, path, tmp_path / target, "--verify")
    assert f"largest difference from {table_of(target).name}" in printed.getvalue()


def test_masked_models_of_fairseq_itself_are_taken(transformers, tmp_path, capsys):
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
