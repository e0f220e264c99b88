"""Our tokens and token numbers equal those of transformers, in Chinese and English."""

import json
import shutil
import subprocess
import sys

import pytest
import torch
from fairseq.data import Dictionary
from support.commands import ROOT
from support.conversion import CONFIG, OURS, SYMBOLS
from support.model_folders import pack, write_task_model
from support.recipes import error_of

import fairseq_posenc
from fairseq_posenc import cli
from fairseq_posenc.exchange.reader import read_vocabulary
from fairseq_posenc.serving.model_folder import read_model_folder
from fairseq_posenc.serving.preparation import Preparation
from fairseq_posenc.serving.transformers_tokenizer import dictionary, find_files, load, read_symbols

pytestmark = pytest.mark.formulas

tokenizers = pytest.importorskip("tokenizers", reason="its tokens are the reference")
transformers = pytest.importorskip("transformers", reason="its tokens are the reference")

LINES = [
    "The cats ran, and the CAT sat.",
    "在公园里散步。",
    "Café naïve\tÉcole 在公园 the公园s",
    "我爱北京天安门 [MASK] unbelievable 2026年",
    "",
    "  spaces\u3000and \u200b control\x07 signs — “quotes” … ",
    "𠀀 rare 😀 " + "long" * 60,
]
WORDS = "the cat ##s ran and sat 公园 公 园 在 里 散步 我 爱 北京 北 京 天安门 天 安 门".split()
WORDS += "un ##believ ##able 2026 年 , . 。 cafe naive ecole café … “ ” — spaces signs".split()


def folder_of(folder, symbols, **settings):
    folder.mkdir(exist_ok=True)
    (folder / "vocab.txt").write_text("".join(f"{s}\n" for s in symbols), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


def agree(folder, theirs):
    """Assert that our symbols equal *theirs*, with the token numbers of the trained model."""
    ours = list(map(load(str(folder)).split, LINES))
    assert ours == [[OURS.get(token, token) for token in theirs(line)] for line in LINES]
    assert sum(map(len, ours)) > 40 and any("<unk>" in line for line in ours)
    vocabulary = read_vocabulary(str(folder), None)
    (folder / "dict.txt").write_text(vocabulary.text(), encoding="utf-8")
    symbols_of = Dictionary.load(str(folder / "dict.txt"))
    symbols_of.add_symbol("<mask>")
    symbols = read_symbols(find_files(str(folder)))[0]
    for line, tokens in zip(LINES, ours):
        numbers = symbols_of.encode_line(" ".join(tokens), append_eos=False, add_if_not_exist=False)
        got = vocabulary.order[numbers.long()] if tokens else torch.tensor([])
        assert [symbols[number] for number in got.tolist()] == theirs(line)


@pytest.mark.parametrize("settings", [{}, {"do_lower_case": False}], ids=str)
def test_word_pieces_are_those_of_bert(tmp_path, settings):
    folder = folder_of(
        tmp_path / "bert", SYMBOLS[:6] + WORDS, tokenizer_class="BertTokenizer", **settings
    )
    theirs = transformers.BertTokenizer.from_pretrained(str(folder), split_special_tokens=True)
    agree(folder, theirs.tokenize)


def test_words_of_jieba_in_the_vocabulary_stay_whole_as_in_roformer(tmp_path):
    pytest.importorskip("rjieba", reason="RoFormer's tokenizer splits text by it")
    folder = folder_of(tmp_path / "roformer", SYMBOLS[:6] + WORDS)
    (folder / "config.json").write_text('{"model_type": "roformer"}')
    tokens = load(str(folder)).split("在公园里散步。")
    assert tokens == ["在", "公园", "里", "散步", "。"]  # in BERT: single characters
    numbers = {symbol: number for number, symbol in enumerate(SYMBOLS[:6] + WORDS)}
    try:
        theirs = transformers.RoFormerTokenizer(vocab=numbers, split_special_tokens=True)
    except TypeError:  # transformers 4
        file = str(folder / "vocab.txt")
        theirs = transformers.RoFormerTokenizer(file, split_special_tokens=True)
    agree(folder, theirs.tokenize)


def test_a_sentence_piece_model_in_a_tokenizer_json(tmp_path):
    trained = tokenizers.SentencePieceUnigramTokenizer()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    text = [line for line in LINES if line] * 3
    trained.train_from_iterator(
        text, 120, special_tokens=special, unk_token="<unk>", show_progress=False
    )
    names = dict(zip(["cls_token", "pad_token", "sep_token", "unk_token", "mask_token"], special))
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=trained._tokenizer, **names)
    fast.save_pretrained(tmp_path)
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    limit = {"max_length": 3, "stride": 0, "strategy": "LongestFirst", "direction": "Right"}
    content["truncation"] = limit
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    theirs = fast.tokenize
    ours = list(map(load(str(tmp_path)).split, LINES))
    assert ours == [theirs(line) for line in LINES] and len(ours[0]) > 3
    assert len(read_vocabulary(str(tmp_path), None).order) == len(fast)


def test_what_cannot_be_read_is_one_line(tmp_path):
    folder = folder_of(tmp_path / "bert", SYMBOLS[:6] + WORDS)
    assert load(str(folder)).split("[SEP] ran") == ["<unk>"] * 3 + ["ran"]  # symbol names are text
    assert dictionary(str(folder)) == read_vocabulary(str(folder), None).text()
    (tmp_path / "empty").mkdir()
    assert "neither vocab.txt nor tokenizer.json" in error_of(load, str(tmp_path / "empty"))
    assert "no such folder" in error_of(load, str(tmp_path / "absent"))
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "XLNetTokenizer"}')
    assert "has a XLNetTokenizer, but no tokenizer.json" in error_of(load, str(folder))


def test_a_tokenizer_is_read_without_pytorch_and_fairseq(tmp_path):
    """``translate`` needs this for exported models."""
    folder = folder_of(tmp_path / "bert", SYMBOLS[:6] + WORDS)
    code = (
        "import sys; sys.argv[0] = 'fairseq-posenc'\n"
        "from fairseq_posenc.serving.subwords import KINDS\n"
        f"print(*KINDS['transformers']({str(folder)!r}).split('The cats'))\n"
        "print(*{'torch', 'fairseq'} & set(sys.modules))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "the cat ##s\n\n"


# --- model folders


def test_packs_a_tokenizer_of_transformers(tmp_path):
    model = write_task_model(tmp_path / "made", "sentence_prediction")
    source = folder_of(tmp_path / "tokenizer", SYMBOLS[:6] + WORDS, do_lower_case=True)
    splitting = ["--subwords", "transformers", "--subword-file", source]
    with pytest.raises(SystemExit, match="its symbols are not those of the model's dictionary"):
        pack(model, tmp_path / "out", *splitting)
    with pytest.raises(SystemExit, match="takes the text as it is; drop --tokenizer"):
        pack(model, tmp_path / "out", *splitting, "--lowercase")
    assert not (tmp_path / "out").exists()
    lines = (model / "data/input0/dict.txt").read_text().splitlines()
    names = [line.split()[0] for line in lines]
    symbols = [*SYMBOLS[:1], *SYMBOLS[2:6], *names]
    shutil.rmtree(source)
    folder_of(source, symbols, do_lower_case=True)
    folder = read_model_folder(str(pack(model, tmp_path / "out", *splitting)))
    assert folder.text.subword_file == "tokenizer"
    assert json.loads((tmp_path / "out/tokenizer/tokenizer_config.json").read_text())
    assert Preparation(folder.text, folder.path).source("The CAT") == ["the", "cat"]


def imported(tmp_path, kind, **settings):
    """A random RoFormer of transformers, its symbols, and the imported and packed model."""
    pytest.importorskip("rjieba", reason="RoFormer's tokenizer splits text by it")
    symbols = SYMBOLS[:6] + WORDS
    config = {**CONFIG, "vocab_size": len(symbols), **settings}
    theirs = getattr(transformers, kind)(transformers.RoFormerConfig(**config))
    theirs.eval().save_pretrained(tmp_path / "theirs")
    folder_of(tmp_path / "theirs", symbols)
    cli.main(["import", "hf-roformer", str(tmp_path / "theirs"), str(tmp_path / "imported")])
    files = [str(tmp_path / "imported" / "checkpoint.pt"), str(tmp_path / "model")]
    splitting = ["--subwords", "transformers", "--subword-file", str(tmp_path / "theirs")]
    cli.main(["pack", *files, *splitting, "--data", str(tmp_path / "imported")])
    return theirs, symbols, fairseq_posenc.from_pretrained(tmp_path / "model")


def test_the_tokenizers_own_mask_is_filled(tmp_path):
    _, _, model = imported(tmp_path, "RoFormerForMaskedLM")
    filled = [model.fill_mask(f"the {mask} ran", topk=3) for mask in ("[MASK]", "<mask>")]
    assert filled[0] == filled[1]
    for text, _, word in filled[0]:
        assert text == f"the {word} ran"


@torch.no_grad()
def test_an_imported_classifier_predicts_as_in_transformers(tmp_path):
    theirs, symbols, model = imported(tmp_path, "RoFormerForSequenceClassification", num_labels=3)
    names = {"<s>": "[CLS]", "</s>": "[SEP]"}
    for texts in (("我爱 the cats", "在公园里散步。"), ("the cat ran",)):
        row = model.encode(*texts)
        tokens = [model.task.source_dictionary[number] for number in row.tolist()]
        first = tokens.index("</s>") + 1
        numbers = [symbols.index(names.get(token, token)) for token in tokens]
        segments = [0] * first + [1] * (len(tokens) - first)
        logits = theirs(torch.tensor([numbers]), token_type_ids=torch.tensor([segments])).logits[0]
        found = model.predict(model.folder.head.name, row, return_logits=True)[0]
        assert found.tolist() == pytest.approx(logits.tolist(), abs=1e-5)
        assert tokens.count("</s>") == len(texts)
    with pytest.raises(ValueError, match="fine-tuned as a classifier"):
        model.fill_mask("the <mask>")
