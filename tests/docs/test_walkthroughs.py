"""Pages whose code blocks are run in order, and must do what the page says."""

import importlib.util
import os
import re
import sys
from pathlib import Path

import pytest
from support.commands import ROOT
from support.recipes import EXAMPLES, run_page

for package in ("transformers", "tokenizers", "safetensors", "onnxruntime"):
    pytest.importorskip(package, reason="the page exchanges models with it")

BLOCK = re.compile(r"^```(bash|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)
#: replaces rjieba if it is not installed: every character is a word
JIEBA = "def tokenize(text, hmm):\n    return [(c, at, at + 1) for at, c in enumerate(text)]\n"


@pytest.mark.slow
def test_the_page_runs_as_printed(tmp_path):
    page = (ROOT / "docs" / "chinese_roformer.md").read_text(encoding="utf-8")
    download, *blocks = BLOCK.findall(page)
    assert "hf download" in download[1]
    script = [text if kind == "bash" else f"python - <<'PY'\n{text}PY\n" for kind, text in blocks]
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    if importlib.util.find_spec("rjieba") is None:
        (tmp_path / "rjieba.py").write_text(JIEBA)
    said = run_page(script, tmp_path, PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}")
    assert '"valid_accuracy": "100"' in (tmp_path / "runs/chinese/tuned/train.log").read_text()
    assert "\nbad\n" in said and said.count("largest difference from ") == 3
    texts, labels = (
        (tmp_path / "runs" / "chinese" / name).read_text(encoding="utf-8").splitlines()
        for name in ("own/test.tsv", "labels.tsv")
    )
    assert [row.split("\t")[1] for row in texts[1:]] == [row.split("\t")[0] for row in labels]


# --- examples/transformers_ecosystem


BASH = re.compile(r"^```bash\n(.*?)^```", re.MULTILINE | re.DOTALL)
#: output that does not depend on the machine, and that the page also prints
PRINTED = ("|word_order|", "merged: perplexity ", "model.onnx: 2.16 MB, 50 of 50 ", "tags:")
OF_LLAMA_CPP = ("equal: 17 entries, 603 symbols, 21 tensors", "llama.gguf: 50 of 50 continuations")


@pytest.mark.slow
@pytest.mark.journeys
def test_the_ecosystem_runs_as_printed(tmp_path):
    """Blocks with llama.cpp run only if the environment variable LLAMA_CPP has its folder."""
    for package in ("lm_eval", "peft", "gguf", "optimum.onnxruntime", "sentencepiece"):
        pytest.importorskip(package, reason="the page uses it")
    page = (EXAMPLES / "transformers_ecosystem" / "README.md").read_text(encoding="utf-8")
    installs, *blocks = BASH.findall(page)
    assert "pip install" in installs
    has_llama = "LLAMA_CPP" in os.environ
    blocks = [block for block in blocks if has_llama or "$LLAMA_CPP" not in block]
    for name in ("examples", "fairseq_posenc"):
        (tmp_path / name).symlink_to(ROOT / name)
    programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    said = run_page(blocks, tmp_path, PATH=programs, PYTHONPATH=str(ROOT))
    assert said.count("largest difference from LlamaForCausalLM") == 2
    for words in (*PRINTED, *(OF_LLAMA_CPP if has_llama else ())):
        assert words in said and words in page, words
