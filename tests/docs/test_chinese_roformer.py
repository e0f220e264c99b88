"""docs/chinese_roformer.md: its blocks run in order as printed, and do what the page says."""

import importlib.util
import os
import re

import pytest
from support.commands import ROOT
from support.recipes import run_page

for package in ("transformers", "tokenizers", "safetensors", "onnxruntime"):
    pytest.importorskip(package, reason="the page exchanges models with it")

BLOCK = re.compile(r"^```(bash|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)
#: stands for the package where it is not installed: every character is a word
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
