"""Pre-training recipes: made-up corpora to checkpoints, and the hyper-parameters of the papers."""

import re

import pytest
from fairseq import options
from fairseq.data import Dictionary, data_utils
from support.pretraining import BERT, ENGLISH
from support.recipes import EXAMPLES, bash, recipe_module, stub_arguments, succeed

pytest_plugins = ["support.pretraining"]
fold = recipe_module("common", "fold").fold


def test_the_data_hold_every_document(prepared, tmp_path):
    data = prepared / "out" / "data-bin"
    dictionary = Dictionary.load(str(data / "dict.txt"))
    lines = data_utils.load_indexed_dataset(str(data / "train"), dictionary)
    lengths = [len(line) for line in lines]
    assert lengths.count(1) == 19  # a lone </s> between 20 documents
    assert max(lengths) <= 31  # 30 tokens and </s>
    texts = [dictionary.string(line).replace("@@ ", "") for line in lines]
    original = (prepared / "text" / "train.txt").read_text(encoding="utf-8").lower()
    assert len(" ".join(texts).split(".")) == len(original.split("."))
    assert any("isn &apos;t" in text for text in texts)
    assert (data / "bpe.codes").read_text().startswith("#version")
    given = (prepared / "text", prepared / "out")
    again = succeed(BERT / "prepare.sh", *given, cwd=tmp_path, **ENGLISH)
    assert again.stdout == f"{prepared}/out/data-bin is there\n"
    other = bash(BERT / "prepare.sh", *given, cwd=tmp_path, **{**ENGLISH, "SIZE": "91"})
    assert other.returncode == 1 and "choose another folder" in other.stderr


def test_documents_of_wikitext_begin_at_headings_and_keep_capitals(tmp_path):
    pytest.importorskip("tokenizers")
    text = " = One = \n\n = = Part = = \n A role @-@ playing game , <unk> Ω .\n = Two = \n b\n"
    for split in ("train", "valid", "test"):
        (tmp_path / f"{split}.txt").write_text(text * (3 if split == "train" else 1))
    form = {"WIKITEXT": "1", "LOWERCASE": "", "SUBWORDS": "byte-bpe", "SIZE": "258"}
    succeed(BERT / "prepare.sh", ".", "out", cwd=tmp_path, WORKERS="1", **form)
    documents = (tmp_path / "out" / "documents" / "test").read_text()
    assert documents == "One\nPart\nA role-playing game , unk Ω .\n\nTwo\nb\n"
    data = tmp_path / "out" / "data-bin"
    dictionary = Dictionary.load(str(data / "dict.txt"))
    assert len(dictionary) == 4 + 258 and (data / "tokenizer" / "tokenizer.json").exists()
    first = data_utils.load_indexed_dataset(str(data / "test"), dictionary)[2]
    assert "Î ©" in dictionary.string(first) and dictionary.unk() not in first


def test_long_lines_are_broken_at_sentences_and_else_at_words():
    words = "a b . c@@ d e f@@ g@@ h".split()
    assert [" ".join(piece) for piece in fold(words, 4)] == ["a b .", "c@@ d e", "f@@ g@@ h"]
    assert list(fold(["▁a", "b", "▁c"], 2, "▁")) == [["▁a", "b"], ["▁c"]]
    assert list(fold(["a@@"] * 3, 2)) == [["a@@", "a@@"], ["a@@"]]


def test_training_keeps_every_tenth_and_the_last_checkpoint(pretrained):
    names = {path.name for path in pretrained.glob("*.pt")}
    updates = {int(n) for n in re.findall(r"checkpoint_\d+_(\d+)\.pt", " ".join(names))}
    assert set(range(2, 21, 2)) <= updates and len(updates) <= 11
    assert {"checkpoint_last.pt", "checkpoint_best.pt"} < names
    assert "num_updates=20, lr=0" in (pretrained / "train.log").read_text()  # linear decay


#: Samples an update on 8 GPUs, updates, warm-up, learning rate, Adam's beta 2, clip norm.
PAPERS = {
    "tupe": (256, 1_000_000, 10_000, 1e-4, 0.999, 1.0),
    "roformer": (64, 100_000, 1_000, 1e-5, 0.999, 1.0),
    "roberta": (8192, 500_000, 24_000, 6e-4, 0.98, 0.0),
    "roberta-large": (8192, 500_000, 30_000, 4e-4, 0.98, 0.0),
    "roberta-256": (256, 1_000_000, 10_000, 1e-4, 0.999, 0.0),
    "roberta-2k": (2048, 125_000, 6_000, 7e-4, 0.98, 0.0),
    "roberta-8k": (8192, 31_250, 1_500, 1e-3, 0.98, 0.0),
}


def parsed(words):
    parser = options.get_training_parser()
    return options.parse_args_and_arch(parser, words)


@pytest.mark.parametrize("paper", PAPERS)
def test_hyper_parameters_are_the_papers(tmp_path, paper):
    given = ("tupe_r_masked_lm_base", "data", "run")
    (words,) = stub_arguments(BERT / "train.sh", *given, cwd=tmp_path, PAPER=paper)
    args = parsed(words)
    samples = 8 * args.batch_size * args.update_freq[0]
    beta, clip = eval(args.adam_betas)[1], args.clip_norm
    found = (samples, args.max_update, args.warmup_updates, args.lr[0], beta, clip)
    assert found == PAPERS[paper] and int(args.total_num_update) == args.max_update
    shorter = {"PAPER": paper, "UPDATES": "5000", "PRECISION": ""}
    (words,) = stub_arguments(BERT / "train.sh", *given, "--lr", 1, cwd=tmp_path, **shorter)
    args, share = parsed(words), PAPERS[paper][2] / PAPERS[paper][1]
    assert args.warmup_updates == int(5000 * share) and args.lr == [1.0] and not args.fp16


def test_amos_needs_no_decay(tmp_path):
    given = ("roformer_masked_lm_base", "data", "run")
    variables = {"OPTIMIZER": "amos", "UPDATES": "250000"}
    (words,) = stub_arguments(BERT / "train.sh", *given, cwd=tmp_path, **variables)
    args = parsed(words)
    assert (args.optimizer, args.lr_scheduler, args.lr) == ("amos", "fixed", [250000**-0.5])


STAGES = [(512, 256, 200000), (1536, 256, 12500), (256, 256, 120000), (128, 512, 80000)]
STAGES += [(1536, 256, 10000), (512, 512, 30000)]


def test_the_stages_are_those_of_table_4(tmp_path):
    given = ("roformer_masked_lm_base", "data", "run", "--lr", "1")
    script = EXAMPLES / "long_chinese" / "train.sh"
    found = stub_arguments(script, *given, cwd=tmp_path)
    for number, (words, (length, samples, updates)) in enumerate(zip(found, STAGES), 1):
        args = parsed(words)
        assert (args.tokens_per_sample, 8 * args.batch_size * args.update_freq[0]) == (
            (length, samples)
        )
        assert args.batch_size * length <= 16384 and args.lr == [1.0]
        assert args.max_update == int(args.total_num_update) == updates
        before = f"run/stage{number - 1}/checkpoint_last.pt" if number > 1 else None
        assert (args.finetune_from_model, args.save_dir) == (before, f"run/stage{number}")
    assert len(found) == len(STAGES)
    (tmp_path / "run" / "stage1" / "train.log").write_text("done training in 3 seconds\n")
    assert len(stub_arguments(script, *given, cwd=tmp_path)) == len(STAGES) - 1
    wrong = bash(script, *given, cwd=tmp_path, STAGES="512x100x9", GPUS="3")
    assert wrong.returncode == 1 and "stage 512x100x9: GPUS=3" in wrong.stderr
