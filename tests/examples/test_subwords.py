"""Byte-level BPE and SentencePiece: learned by recipes, applied alike by all that read the data."""

import pytest
from support.recipes import COMMON, EXAMPLES, bash, commands

pytest.importorskip("tokenizers", reason="byte-level BPE needs it")


@pytest.mark.parametrize("case, flags", [("", ["--lower-case"]), ("--keep-case", [])])
def test_what_is_recorded_with_the_data_is_used_by_all(tmp_path, case, flags):
    data = tmp_path / "data"
    data.mkdir()
    (data / "text").write_text(f"lang en\nkeep-case {case}\nsubwords sentencepiece\n")
    (tmp_path / "glue" / "CoLA").mkdir(parents=True)
    given = ("glue", data, "out", "--dry-run")
    found = commands(bash(EXAMPLES / "glue" / "prepare.sh", *given, cwd=tmp_path))
    helper, kept = str(COMMON / "spm.py"), str(data / "sentencepiece.model")
    parts = [f"{tmp_path}/out/work/CoLA/{part}/input0/train" for part in ("text", "pieces")]
    assert ["python", helper, *flags, "apply", kept, *parts] in found
    assert ["cp", kept, str(data / "text"), f"{tmp_path}/out/CoLA.part"] in found
    train = EXAMPLES / "bert_pretraining" / "train.sh"
    found = commands(bash(train, "roberta", data, "--cpu", "--dry-run", cwd=tmp_path))
    (pack,) = [" ".join(words) for words in found if words[:2] == ["fairseq-posenc", "pack"]]
    assert f"--tokenizer none --subwords sentencepiece --subword-file {kept}" in pack
    assert ("--lowercase" in pack) == (not case)


def test_the_size_of_the_vocabulary_is_given_not_its_merges(tmp_path):
    prepare = EXAMPLES / "bert_pretraining" / "prepare.sh"

    def learned(*flags):
        found = commands(bash(prepare, "text", "out", *flags, "--dry-run", cwd=tmp_path))
        (words,) = [words for words in found if "learn" in words]
        return words[1].rpartition("/")[2], words[3:5]

    assert learned() == ("bpe.py", ["--vocabulary-size", "32678"])
    assert learned("--bpe-operations", "9") == ("bpe.py", ["--operations", "9"])
    assert learned("--subwords", "sentencepiece") == ("spm.py", ["--vocabulary-size", "32678"])
    assert learned("--subwords", "byte-bpe") == ("byte_bpe.py", ["--vocabulary-size", "50000"])
