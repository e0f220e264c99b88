"""The translation recipe, from texts to scores, and the recipe for swapping the encoding."""

import re

import pytest
import sacrebleu
import torch
from support.commands import read
from support.recipes import EXAMPLES, recipe_module, succeed, write
from support.recipes import bash as run_script

from fairseq_posenc.serving.preparation import Preparation, Text

pytest_plugins = ["support.toy"]
pytestmark = pytest.mark.journeys

pytest.importorskip("sentencepiece", reason="the recipes need sentencepiece")

RECIPE = EXAMPLES / "translation"
corpus = recipe_module("toy", "corpus")
NAMES = {"SOURCE": "de", "TARGET": "ne", "VALID": "valid", "TEST": "test", "WORKERS": "1"}


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """A folder with German text and its English translation written backwards."""
    folder = tmp_path_factory.mktemp("texts")
    pairs = [(german, english[::-1]) for english, german in corpus.draw_pairs(170, 3)]
    pairs[-1] = ("Das kostet 5 € (日本).", ".Ω 5 stsoc tI")  # characters that are not in train
    for split, size in {"train": 150, "valid": 9, "test": 11}.items():
        part, pairs = pairs[:size], pairs[size:]
        for side, lang in enumerate(("de", "ne")):
            write(folder / f"{split}.{lang}", [pair[side] for pair in part])
    return folder


def lines_of(path):
    return path.read_text(encoding="utf-8").split("\n")[:-1]


def bash(script, *arguments, cwd, **variables):
    return run_script(RECIPE / script, *arguments, cwd=cwd, **{**NAMES, **variables})


@pytest.mark.parametrize(
    "kind, size",
    [pytest.param("subword-nmt", "120", marks=pytest.mark.slow), ("sentencepiece", "330")],
)
def test_from_texts_to_scores(texts, tmp_path, kind, size):
    def prepare():
        return bash("prepare.sh", texts, "out", cwd=tmp_path, SUBWORDS=kind, SIZE=size)

    assert prepare().returncode == 0
    again = prepare()
    assert (again.returncode, again.stdout) == (0, "out/data-bin exists already\n")
    data, results = tmp_path / "out" / "data-bin", tmp_path / "run" / "evaluate"
    if kind == "subword-nmt":
        serving = Preparation(Text("de", "ne", "moses", False, kind, "bpe.codes"), str(data))
    else:
        file = "sentencepiece.model"
        serving = Preparation(Text(subwords=kind, subword_file=file), str(data))
        assert "<0xE6>" in lines_of(tmp_path / "out" / "subwords" / "test.de")[-1]
    for split in ("train", "test"):
        for lang, split_line in (("de", serving.source), ("ne", serving.target)):
            subwords = lines_of(tmp_path / "out" / "subwords" / f"{split}.{lang}")
            words = [line.split() for line in subwords]
            assert list(map(split_line, lines_of(texts / f"{split}.{lang}"))) == words

    short = ["--cpu", "--max-tokens", 900, "--log-interval", 4, "--max-epoch", 2]
    layers = ["--decoder-layers", 1, "--encoder-layers", 1]
    succeed(RECIPE / "train.sh", "tupe_tiny", data, "run", *short, *layers, cwd=tmp_path)
    given = {**NAMES, "AVERAGE": "2"}
    arguments = [data, "run", "--cpu", "--max-len-b", 9]
    succeed(RECIPE / "evaluate.sh", *arguments, cwd=tmp_path, **given)
    hypotheses, reference = lines_of(results / "hypotheses.txt"), lines_of(texts / "test.ne")
    scores = [line.strip() for line in lines_of(results / "scores.txt")]
    chrf = sacrebleu.corpus_chrf(hypotheses, [reference]).score
    assert scores[-2].startswith("chrF2|") and scores[-2].endswith(f" = {chrf:.2f}")
    assert scores[0].startswith("tokenised BLEU ") == (kind == "subword-nmt")
    subwords = lines_of(results / "hypotheses.subwords")
    assert hypotheses == [serving.restore(line.split()) for line in subwords]


# --- swapping the encoding

SWAP = EXAMPLES / "swap_encoding" / "run.sh"
SMALL = ["--validate-interval-updates", "2", "--validate-interval", "9", "--max-tokens", "200"]
SMALL += ["--cpu", "--num-workers", "0"]


@pytest.mark.parametrize("part", ["attention", "lora"])
def test_fairseqs_transformer_becomes_a_roformer(part, toy, stock, tmp_path):
    given = {"PART": part, "UPDATES": "4"}
    words = ["rotary", stock, toy.joined, "out", *SMALL]
    result = succeed(SWAP, *words, cwd=tmp_path, **given)
    rows = re.findall(r"^(model|\d+)\t([\d.]+)\t(\S*)$", result.stdout, re.MULTILINE)
    assert [row[0] for row in rows] == ["model", "0", "2", "4"]
    original = float(rows[0][1])
    for _, loss, more in rows[1:]:
        assert float(loss) - original == pytest.approx(float(more), abs=2e-3)
    assert "won back" in result.stdout
    before, (after, settings) = read(stock)[0], read(tmp_path / "out" / "checkpoint_last.pt")
    assert settings["position_encoding"] == "rotary"
    if part == "attention":
        kept = {name for name in before if "attn" not in name and name in after}
        assert kept and all(torch.equal(before[name], after[name]) for name in kept)
    else:
        assert {name for name in after if ".lora_" not in name} == {"low_rank_base"}
