"""examples/transformers_ecosystem: the blocks of its page run in order, and print what it says."""

import os
import re
import sys
from pathlib import Path

import pytest
from support.commands import ROOT
from support.recipes import EXAMPLES, run_page

pytestmark = pytest.mark.journeys

BLOCK = re.compile(r"^```bash\n(.*?)^```", re.MULTILINE | re.DOTALL)
#: results that do not depend on the machine, and are on the page as well
PRINTED = ("|word_order|", "merged: perplexity ", "model.onnx: 2.16 MB, 50 of 50 ", "tags:")
OF_LLAMA_CPP = ("equal: 17 entries, 603 symbols, 21 tensors", "llama.gguf: 50 of 50 continuations")


@pytest.mark.slow
def test_the_page_runs_as_printed(tmp_path):
    """llama.cpp's part runs where its folder is in the environment, as LLAMA_CPP."""
    for package in ("lm_eval", "peft", "gguf", "optimum.onnxruntime", "sentencepiece"):
        pytest.importorskip(package, reason="the page uses it")
    page = (EXAMPLES / "transformers_ecosystem" / "README.md").read_text(encoding="utf-8")
    installs, *blocks = BLOCK.findall(page)
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
