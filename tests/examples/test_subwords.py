"""Byte-level BPE and SentencePiece: learned by recipes, applied alike by all that read the data."""

import pytest
from support.recipes import EXAMPLES, bash, commands

pytest.importorskip("tokenizers", reason="byte-level BPE needs it")


def test_what_is_recorded_with_the_data_is_used_by_all(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    (data / "text").write_text("lang en\nkeep-case \nsubwords sentencepiece\n")
    (tmp_path / "glue" / "CoLA").mkdir(parents=True)
    given = ("glue", data, "out", "--dry-run")
    found = commands(bash(EXAMPLES / "glue" / "prepare.sh", *given, cwd=tmp_path))
    kept = str(data / "sentencepiece.model")
    (split,) = [words for words in found if "apply-subwords" in words]
    assert split[2:4] == ["like", str(data)]
    parts = [f"{tmp_path}/out/work/CoLA/{part}/input0/train" for part in ("text", "pieces")]
    assert " ".join(parts) in " ".join(split)
    assert ["cp", kept, str(data / "text"), f"{tmp_path}/out/.part/CoLA"] in found
    train = EXAMPLES / "bert_pretraining" / "train.sh"
    found = commands(bash(train, "roberta", data, "--cpu", "--dry-run", cwd=tmp_path))
    (pack,) = [" ".join(words) for words in found if words[:2] == ["fairseq-posenc", "pack"]]
    assert f"--text-of {data}" in pack


def test_the_size_of_the_vocabulary_is_given_not_its_merges(tmp_path):
    prepare = EXAMPLES / "bert_pretraining" / "prepare.sh"

    def learned(*flags):
        found = commands(bash(prepare, "text", "out", *flags, "--dry-run", cwd=tmp_path))
        (words,) = [words for words in found if "learn-subwords" in words]
        return words[2:5]

    assert learned() == ["subword-nmt", "--vocabulary-size", "32678"]
    assert learned("--bpe-operations", "9") == ["subword-nmt", "--operations", "9"]
    for kind, size in (("sentencepiece", "32678"), ("byte-bpe", "50000")):
        assert learned("--subwords", kind) == [kind, "--vocabulary-size", size]
