"""Exported models, of a transformers class or with own code, generate the text of fairseq."""

import json
import subprocess
import sys

import pytest
import torch
from fairseq import models
from support.commands import shape
from support.conversion import convert
from support.expressed import EXPRESSED, WORDS, load, table_of
from support.helpers import parse
from support.model_folders import (
    NORMS_FIRST,
    SHARED,
    Task,
    dictionary,
    write_model,
    write_state,
    write_translation,
)
from support.model_folders import WORDS as WORDS_OF_FOLDER

from fairseq_posenc.checkpoints import loader
from fairseq_posenc.models.kinds import PAD
from fairseq_posenc.serving.translate import Beam
from fairseq_posenc.serving.translation import FairseqEngine

pytestmark = pytest.mark.journeys

#: The third text is longer than any text in training.
TEXTS = ["w1 w2 w39 elsewhere w3", "w7", " ".join(WORDS + WORDS[:18])]


@torch.no_grad()
def continued(model, tokens, number):
    """Our model's greedy continuations, from a full forward pass for every token."""
    for _ in range(number):
        logits = model(tokens)[0][:, -1]
        logits[:, PAD] = float("-inf")
        tokens = torch.cat((tokens, logits.argmax(-1, keepdim=True)), dim=1)
    return tokens


@pytest.mark.parametrize("name", ["grouped", "yarn", "share", "bloom", "gpt2"])
def test_texts_are_continued_alike(name, made, transformers):
    """Texts are left-padded and exceed the training length; GPT-2 stops at its limit by default."""
    path, theirs = made(name).path, made(name).theirs
    ours = load(path)
    model = transformers.AutoModelForCausalLM.from_pretrained(theirs).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(theirs, padding_side="left")
    batch = tokenizer(TEXTS, return_tensors="pt", padding=True, return_token_type_ids=False)
    known = {"eos_token_id": -1, "pad_token_id": PAD, "suppress_tokens": [PAD]}
    together = model.generate(**batch, max_new_tokens=12, do_sample=False, **known)
    for text, row in zip(TEXTS, together):
        numbers = [4 + WORDS.index(word) if word in WORDS else 3 for word in text.split()]
        want = continued(ours, torch.tensor([[2, *numbers]]), 12)[0]
        assert row[len(row) - len(want) :].tolist() == want.tolist()
    if name == "gpt2":  # the table has 80 rows, and a pipeline writes 256 tokens by default
        write = transformers.pipeline("text-generation", str(theirs))
        (found,) = write("w1 w2", return_tensors=True, do_sample=False, eos_token_id=-1)
        assert len(found["generated_token_ids"]) == 80


def assert_fairseq_writes(rows, loaded, beam):
    """Assert that *rows* are the token numbers that fairseq's search finds for TEXTS."""
    settings, symbols = Beam(beam, 1.0, 1, 200, 2000), loaded.task.target_dictionary
    found = FairseqEngine(loaded).translate([text.split() for text in TEXTS], [[]] * 3, settings)
    ours = [hypotheses[0].tokens for hypotheses in found]
    assert [[symbols[n] for n in row if n not in (2, PAD)] for row in rows] == ours


@pytest.mark.parametrize("name", ["unscaled", "mbart", "m2m100", "swiglu"])
def test_translations_are_the_same(name, made, transformers):
    theirs, loaded = made(name).theirs, loader.load(str(made(name).path))
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(theirs).eval()
    assert f"{type(model).__name__} of transformers" == table_of(EXPRESSED[name].target).name
    tokenizer = transformers.AutoTokenizer.from_pretrained(theirs)
    batch = tokenizer(TEXTS, return_tensors="pt", padding=True)
    for beam in (1, 4):
        rows = model.generate(**batch, num_beams=beam, do_sample=False)
        assert_fairseq_writes(rows.tolist(), loaded, beam)
        assert beam > 1 or rows.size(1) > 52  # random models rarely write </s>


LEARNED = ["--encoder-learned-pos", "--decoder-learned-pos", "--layernorm-embedding"]


@pytest.mark.parametrize("target, flags", [("hf-m2m100", NORMS_FIRST), ("hf-bart", LEARNED)])
def test_translation_models_of_fairseq_itself_are_taken(
    target, flags, transformers, tmp_path, capsys
):
    """fairseq's models have sinusoids by default, or a learned table."""
    path = write_translation(tmp_path / "ours", *flags, *SHARED, arch="transformer")
    convert("export", target, path, tmp_path / target, "--verify")
    assert f"largest difference from {table_of(target).name}" in capsys.readouterr().out


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
    pytest.importorskip("onnxruntime", reason="the format needs it")
    convert("export", "onnx", tmp_path / "model.pt", tmp_path / "out.onnx", "--verify")
    assert "largest difference from onnxruntime" in capsys.readouterr().out


# --- folders with their own code


_SHARED = "rotary --share-all-embeddings"
WITH_CODE = {
    "rotary": _SHARED,
    "two dictionaries": (
        "rotary --encoder-normalize-before --decoder-normalize-before --kv-heads 2 --norm rms "
        "--no-bias --feed-forward swiglu"
    ),
    "bases": f"{_SHARED} --rotary-base 500,10000 --rotary-fraction 0.5",
    "yarn": (
        f"{_SHARED} --rotary-scaling yarn --rotary-scaling-factor 4 --rotary-original-length 30 "
        "--rotary-pairing half"
    ),
    "kept": f"{_SHARED} --rotary-kept 0.5 --qk-norm --layernorm-embedding --no-scale-embedding",
    "pattern": "rotary,none --share-all-embeddings",
    "alibi": "alibi --feed-forward geglu --share-all-embeddings",
    "widths": "rotary --encoder-embed-dim 48 --share-decoder-input-output-embed",
    "both": "learned+t5 --activation-fn gelu_accurate --share-all-embeddings",
    "sides": (
        f"{_SHARED} --encoder-position-encoding rotary+kerple "
        "--decoder-position-encoding sinusoidal"
    ),
}
WITH_CODE = {name: ["--position-encoding", *row.split()] for name, row in WITH_CODE.items()}
#: Code for a process without the plug-in, which loads and uses a folder.
USE = """
import json, sys, torch
sys.modules["fairseq"] = sys.modules["fairseq_posenc"] = None
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
results = []
for folder in sys.argv[2:]:
    model = AutoModelForSeq2SeqLM.from_pretrained(folder, trust_remote_code=True).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
    for side in ("right", "left"):
        tokenizer.padding_side = side
        batch = tokenizer(json.loads(sys.argv[1]), return_tensors="pt", padding=True)
        for beams, cached in ((1, True), (1, False), (3, True)):
            rows = model.generate(**batch, num_beams=beams, use_cache=cached)
            results.append([folder, beams, rows.tolist()])
    labels = torch.tensor([[5, 6, 2], [7, 2, -100], [8, 9, 2]])
    loss = model.train()(**batch, labels=labels).loss
    loss.backward()
    assert all(p.grad is not None for n, p in model.named_parameters() if "layer_norm" not in n)
    inputs = torch.tensor([[2, 5, 6], [2, 7, 1], [2, 8, 9]])
    logits = model.eval()(**batch, decoder_input_ids=inputs).logits
    wanted = torch.nn.functional.cross_entropy(logits.transpose(1, 2), labels)
    model.save_pretrained(folder + "/saved")
    again = AutoModelForSeq2SeqLM.from_pretrained(folder + "/saved", trust_remote_code=True)
    same = again.eval()(**batch, decoder_input_ids=inputs).logits
    assert torch.equal(logits, same) and abs(float(wanted - loss)) < 1e-5
    rounded = model.bfloat16()(**batch, decoder_input_ids=inputs).logits  # no mask overflows
    assert (rounded - logits).abs().mean() < logits.abs().mean() / 5
print("RESULTS" + json.dumps(results))
"""


@pytest.mark.parametrize("name", WITH_CODE)
def test_logits_are_the_same(name, transformers, tmp_path, capsys):
    """``--verify`` compares padded batches of texts of the model's maximal length."""
    other = WORDS[::-1] + ["more"] if name == "two dictionaries" else None
    path = write_translation(tmp_path / "ours", *WITH_CODE[name], target=other)
    convert("export", "hf-remote-code", path, tmp_path / "theirs", "--verify")
    line = "largest difference from the code in the exported folder: "
    printed = capsys.readouterr().out
    assert line in printed and float(printed.split(line)[1].split()[0]) < 3e-5


def test_translations_are_the_same_in_a_process_without_the_plug_in(transformers, tmp_path):
    """With padding on either side, with or without a cache; the process also trains and saves."""
    paths = {
        str(tmp_path / name): write_translation(tmp_path / "ours" / name, *WITH_CODE[name])
        for name in ("rotary", "sides")
    }
    for folder, path in paths.items():
        convert("export", "hf-remote-code", path, folder)
    environment = {"HF_MODULES_CACHE": str(tmp_path / "modules"), "OMP_NUM_THREADS": "1"}
    found = subprocess.run(
        [sys.executable, "-c", USE, json.dumps(TEXTS), *paths],
        cwd=tmp_path,
        env={**environment, "HOME": str(tmp_path), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert "RESULTS" in found.stdout, found.stderr[-3000:]
    results = json.loads(found.stdout.split("RESULTS")[1])
    assert len(results) == 12
    loaded = {folder: loader.load(str(path)) for folder, path in paths.items()}
    for folder, beams, rows in results:
        assert_fairseq_writes(rows, loaded[folder], beams)


def test_a_model_folder_says_how_text_was_prepared_and_searched(transformers, tmp_path, capsys):
    made = write_model(tmp_path / "made")
    text = ("--subwords", "subword-nmt", "--subword-file", made / "codes", "--tokenizer", "moses")
    convert("pack", made / "model.pt", tmp_path / "model", "--data", made / "data", *text)
    capsys.readouterr()
    convert("export", "hf-remote-code", tmp_path / "model", tmp_path / "one", "--verify")
    assert "apply --tokenizer moses to inputs" in capsys.readouterr().out
    search = json.loads((tmp_path / "one" / "generation_config.json").read_text())
    assert (search["num_beams"], search["length_penalty"]) == (4, 0.6)
    other = ("--data", made / "data", "--text-of", tmp_path / "model")
    convert("export", "hf-remote-code", made / "model.pt", tmp_path / "other", *other)
    for folder in ("", "target"):
        files = [tmp_path / name / folder / "tokenizer.json" for name in ("one", "other")]
        assert files[0].read_bytes() == files[1].read_bytes()
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path / "one" / "target")
    known = len(WORDS_OF_FOLDER) + 4
    numbers = [n if n < known else 3 for n in tokenizer("the dog milks cat")["input_ids"]]
    place = {word: 4 + n for n, word in enumerate(WORDS_OF_FOLDER[::-1])}
    milks = [3] * 5  # m@@ i@@ l@@ k@@ s
    assert numbers == [place["the"], place["do@@"], place["g"], *milks, place["cat"], 2]
