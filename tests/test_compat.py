"""Work-arounds for fairseq, PyTorch and NumPy: each quirk, and that nothing else changes."""

import copy
import io
import random
import sys
import types
import warnings
from argparse import Namespace
from pathlib import Path

import commands
import numpy as np
import pytest
import torch
from fairseq import checkpoint_utils, utils
from fairseq.data import FairseqDataset, TokenBlockDataset, bucket_pad_length_dataset, data_utils
from fairseq.distributed import utils as distributed_utils
from fairseq.models.transformer import TransformerConfig
from fairseq.modules.transformer_layer import TransformerEncoderLayerBase
from fairseq.tasks.fairseq_task import FairseqTask

import fairseq_posenc
from fairseq_posenc import checkpoints, compat
from fairseq_posenc.compat import numpy2, patching
from fairseq_posenc.errors import UsageError

PACKAGE = Path(fairseq_posenc.__file__).resolve().parent
PLUGIN = ("--user-dir", PACKAGE)
SIZES = [1, 7, 8, 9, 461]
TINY = [
    *("--cpu", "--arch", "transformer", "--encoder-layers", 1, "--decoder-layers", 1),
    *("--encoder-embed-dim", 8, "--encoder-ffn-embed-dim", 8, "--encoder-attention-heads", 2),
    *("--decoder-embed-dim", 8, "--decoder-ffn-embed-dim", 8, "--decoder-attention-heads", 2),
    *("--optimizer", "adam", "--lr", 0.001, "--max-epoch", 1, "--num-workers", 0),
    *("--max-tokens", 200, *PLUGIN),
]
SAFE_GLOBALS = hasattr(torch.serialization, "get_unsafe_globals_in_checkpoint")


def write_text(path, lines, longest=9):
    """Write *lines* random sentences of 2 to *longest* words in two languages."""
    words = [f"w{number}" for number in range(30)]
    text = [random.choices(words, k=random.randint(2, longest)) for _ in range(lines)]
    for language in "ab":
        Path(f"{path}.{language}").write_text(
            "".join(" ".join(line) + "\n" for line in text), encoding="utf-8"
        )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Make toy data with test sets of every size, an empty and a long-winded training set."""
    folder = tmp_path_factory.mktemp("compat")
    random.seed(1)
    for name, lines, longest in (
        ("train", 40, 9),
        ("valid", 13, 9),
        *((f"test{size}", size, 9) for size in SIZES),
        ("empty", 0, 9),
        ("long", 5, 60),
    ):
        write_text(folder / name, lines, longest)
    tests = ",".join(str(folder / f"test{size}") for size in SIZES)
    pairs = ("-s", "a", "-t", "b", "--joined-dictionary")
    commands.succeed(
        *("preprocess", *pairs, "--destdir", folder / "data", "--trainpref", folder / "train"),
        *("--validpref", folder / "valid", "--testpref", tests),
    )
    for name, train, valid in (("empty", "empty", "valid"), ("long", "train", "long")):
        commands.succeed(
            *("preprocess", *pairs, "--destdir", folder / name, "--trainpref", folder / train),
            *("--validpref", folder / valid, "--srcdict", folder / "data" / "dict.a.txt"),
        )
    return folder


@pytest.fixture(scope="module")
def trained(folder):
    """Train one epoch; return the checkpoint."""
    commands.succeed("train", folder / "data", *TINY, "--save-dir", folder / "run")
    return folder / "run" / "checkpoint_last.pt"


def test_applying_twice_changes_nothing():
    owners = [data_utils, checkpoint_utils, utils, bucket_pad_length_dataset, FairseqTask]
    before = [dict(vars(owner)) for owner in owners]
    compat.apply()
    assert [dict(vars(owner)) for owner in owners] == before


def test_a_replacement_reaches_who_imported_the_original(monkeypatch):
    home, importer, other = (types.ModuleType(name) for name in ("fairseq.a", "fairseq.b", "c"))
    for module in (home, importer, other):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    home.answer = importer.answer = other.answer = lambda: 42
    for _ in range(2):
        patching.wrap(home, "answer", lambda original: lambda: original() + 1)
    assert (home.answer(), importer.answer(), other.answer()) == (43, 43, 42)


# No sentence is lost


class Sentences(FairseqDataset):
    """Sentences of given lengths; *shapes* and *vector* choose fairseq's way of batching them."""

    def __init__(self, lengths, shapes=None, vector=True):
        self.sizes, self.shapes, self.vector = np.asarray(lengths), shapes, vector

    def __len__(self):
        return len(self.sizes)

    def __getitem__(self, index):
        return index

    def collater(self, samples):
        return samples

    def size(self, index):
        return int(self.sizes[index])

    num_tokens = size

    def num_tokens_vec(self, indices):
        if not self.vector:
            raise NotImplementedError
        return self.sizes[indices]

    def ordered_indices(self):
        return np.argsort(self.sizes, kind="stable")

    def get_batch_shapes(self):
        return self.shapes


WAYS = {
    "by vector": {},
    "by function": {"vector": False},
    "fixed shapes": {"shapes": [(8, 20), (16, 10), (32, 5)]},
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("multiple", [1, 8])
def test_batches_hold_every_sentence_once_and_in_order(size, way, multiple):
    dataset = Sentences(np.random.RandomState(size).randint(1, 20, size), **WAYS[way])
    indices = dataset.ordered_indices()
    batches = dataset.batch_by_size(indices, max_tokens=330, required_batch_size_multiple=multiple)
    assert np.concatenate(batches).tolist() == indices.tolist()
    for batch in batches:
        assert 0 < len(batch) * max(dataset.sizes[batch]) <= 330
    for batch in batches[:-1]:
        assert len(batch) < multiple or len(batch) % multiple == 0 or way == "fixed shapes"


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("shards", [1, 2])
def test_an_epoch_has_every_sentence_once(size, shards):
    seen = []
    for shard in range(shards):
        iterator = FairseqTask(Namespace()).get_batch_iterator(
            Sentences(np.full(size, 7)),
            max_sentences=16,
            required_batch_size_multiple=8,
            num_shards=shards,
            shard_id=shard,
        )
        seen += [index for batch in iterator.next_epoch_itr(shuffle=True) for index in batch]
    assert sorted(seen) == list(range(size))


def test_no_sentence_makes_no_batch():
    nothing = np.array([], dtype=np.int64)
    assert data_utils.batch_by_size(nothing, len, required_batch_size_multiple=8) == []
    assert list(data_utils.batch_by_size(iter([]), len, required_batch_size_multiple=8)) == []


@pytest.mark.parametrize("number, size", enumerate(SIZES))
def test_generate_translates_every_sentence(folder, trained, number, size):
    subset = f"test{number or ''}"
    flags = ("--path", trained, "--beam", 1, "--max-len-b", 3, "--gen-subset", subset, "--cpu")
    finished = commands.succeed("generate", folder / "data", *flags, *PLUGIN)
    assert sorted(finished.hypotheses()) == list(range(size))


def test_validation_scores_every_sentence(folder, trained):
    flags = ("--task", "translation", "--path", trained, "--max-tokens", 1000, "--cpu")
    log = commands.succeed("validate", folder / "data", *flags, "--log-format", "json", *PLUGIN)
    words = sum(len(line.split()) + 1 for line in (folder / "valid.b").read_text().splitlines())
    assert f'"valid_wpb": "{words}"' in log.out + log.err
    assert '"valid_bsz": "13"' in log.out + log.err


# Checkpoints


def test_only_load_differs_in_what_reads_checkpoints(trained):
    seen = checkpoint_utils.torch
    assert (seen.save, seen.device, seen.serialization) == (
        *(torch.save, torch.device, torch.serialization),
    )
    with open(str(trained), "rb") as file:
        state = seen.load(file, map_location="cpu", weights_only=False)
    assert state["model"].keys() == checkpoints.read_checkpoint(trained)["model"].keys()


@pytest.fixture
def broken(trained, tmp_path):
    """Return a function that makes a broken checkpoint of a kind."""

    def make(kind):
        path = tmp_path / f"{kind}.pt"
        if kind == "truncated":
            path.write_bytes(trained.read_bytes()[:3000])
        if kind == "folder":
            path.mkdir()
        if kind == "forbidden":
            state = checkpoints.read_checkpoint(trained)
            state["extra_state"]["sampler"] = random.Random(1)
            torch.save(state, str(path))
        return path

    return make


WORDS = {
    "missing": "No such file",
    "truncated": "truncated",
    "folder": "Is a directory",
    "forbidden": "random.Random",
}


@pytest.mark.parametrize(
    "command, kind",
    [
        *(("generate", kind) for kind in WORDS),
        *((command, "truncated") for command in ("interactive", "validate", "eval_lm")),
    ],
)
def test_commands_say_what_is_wrong_with_a_checkpoint(folder, broken, command, kind):
    path = broken(kind)
    task = "language_modeling" if command == "eval_lm" else "translation"
    data = folder / "data"
    if command == "eval_lm":
        (data / "dict.txt").write_bytes((data / "dict.a.txt").read_bytes())
    finished = commands.run(
        *(command, data, "--task", task, "--path", path, "--cpu", "--max-tokens", 99, *PLUGIN)
    )
    assert str(path) in finished.message() and WORDS[kind] in finished.message()


@pytest.mark.parametrize(
    "flag, kind",
    [
        ("--restore-file", "missing"),
        ("--restore-file", "truncated"),
        ("--finetune-from-model", "missing"),
    ],
)
def test_training_does_not_start_from_nothing(folder, broken, tmp_path, flag, kind):
    path = broken(kind)
    finished = commands.run(
        *("train", folder / "data", *TINY, "--save-dir", tmp_path / "run", flag, path)
    )
    assert str(path) in finished.message()
    assert "no such file" in finished.message() or WORDS[kind] in finished.message()
    assert not list(tmp_path.glob("run/*.pt"))


def test_a_training_without_a_checkpoint_of_its_own_is_a_fresh_start(folder, tmp_path):
    own = tmp_path / "run" / "checkpoint_last.pt"  # as a job that is resumed names it
    flags = ("--save-dir", tmp_path / "run", "--restore-file", own)
    commands.succeed("train", folder / "data", *TINY, *flags)
    assert own.exists()


def test_resuming_another_architecture_names_the_parameter(folder, trained, tmp_path):
    flags = ("--save-dir", tmp_path, "--restore-file", trained, "--encoder-ffn-embed-dim", 16)
    message = commands.run("train", folder / "data", *TINY, *flags).message()
    assert str(trained) in message and "encoder.layers.0.fc1" in message


def test_another_dictionary_is_named(trained, folder, tmp_path):
    for language in "ab":
        (tmp_path / f"dict.{language}.txt").write_text("w1 1\n")
    flags = ("-s", "a", "-t", "b", "--path", trained, "--cpu", *PLUGIN)
    message = commands.run("interactive", tmp_path, *flags).message()
    assert str(trained) in message and "embed_tokens.weight" in message


@pytest.fixture
def rotary_checkpoint(trained, tmp_path):
    """Make a checkpoint that says its model was trained with rotary positions."""
    state = checkpoints.read_checkpoint(trained)
    state["cfg"]["model"].position_encoding = "rotary"
    torch.save(state, str(tmp_path / "rotary.pt"))
    return str(tmp_path / "rotary.pt")


@pytest.mark.parametrize("overrides", [{"dropout": 0.5}, {"position_encoding": "rotary"}, {}, None])
def test_overrides_that_keep_the_encoding_work(rotary_checkpoint, overrides):
    state = checkpoint_utils.load_checkpoint_to_cpu(rotary_checkpoint, overrides)
    assert state["cfg"].model.position_encoding == "rotary"
    assert state["cfg"].model.dropout == (overrides or {}).get("dropout", 0.1)


@pytest.mark.parametrize("nested", [True, False])
def test_overrides_cannot_change_the_encoding(rotary_checkpoint, trained, nested):
    overrides = {"position_encoding": "learned"}
    overrides = {"model": overrides} if nested else overrides
    for path, was in ((rotary_checkpoint, "rotary"), (str(trained), "none of this plug-in")):
        with pytest.raises(UsageError, match="continue training with --restore-file") as error:
            checkpoint_utils.load_checkpoint_to_cpu(path, overrides)
        assert "position_encoding='learned'" in str(error.value) and was in str(error.value)


@pytest.mark.skipif(not SAFE_GLOBALS, reason="torch.load is not restricted by default before 2.6")
def test_what_rank_0_sends_to_the_others_loads_there(trained):
    sent = checkpoint_utils.load_checkpoint_to_cpu(str(trained))
    buffer = io.BytesIO()
    torch.save(distributed_utils._split_tensors_from_obj(sent, []), buffer)
    buffer.seek(0)
    assert torch.load(buffer)["cfg"] == sent["cfg"]
    buffer.seek(0)
    asked = set()
    saved = torch.serialization.get_safe_globals()
    try:
        torch.serialization.clear_safe_globals()
        asked = set(torch.serialization.get_unsafe_globals_in_checkpoint(buffer))
    finally:
        torch.serialization.add_safe_globals(saved)
    assert asked <= set(checkpoints.ALLOWED_GLOBALS)
    assert set(checkpoints.BROADCAST_GLOBALS) - asked <= {"builtins.dict", "builtins.list"}


# Data


@pytest.mark.parametrize(
    "data, flags, says",
    [
        ("empty", (), "train.a-b.a.bin: the train split has no sentence"),
        ("data", ("--max-source-positions", 1, "--max-target-positions", 1), "training split"),
        ("data", ("--max-tokens", 2), "--max-tokens 2"),
        (
            "long",
            ("--max-source-positions", 20, "--max-target-positions", 20),
            "--skip-invalid-size-inputs-valid-test",
        ),
        ("long", ("--max-tokens-valid", 10), "--max-tokens"),
    ],
)
def test_data_that_cannot_be_used_is_one_line(folder, tmp_path, data, flags, says):
    finished = commands.run("train", folder / data, *TINY, *flags, "--save-dir", tmp_path)
    assert says in finished.message()


def test_too_few_tokens_for_a_test_sentence(folder, trained):
    flags = ("--path", trained, "--max-tokens", 3, "--cpu", *PLUGIN)
    assert "--max-tokens" in commands.run("generate", folder / "data", *flags).message()


# Language models


@pytest.fixture(scope="module")
def language_model(folder):
    """Train a language model of 16 positions; return its data and its checkpoint."""
    data, run = folder / "lm", folder / "lm-run"
    commands.succeed(
        *("preprocess", "--only-source", "--destdir", data, "--trainpref", folder / "train.a"),
        *("--validpref", folder / "valid.a", "--testpref", folder / "test9.a"),
    )
    commands.succeed(
        *("train", data, "--cpu", "--task", "language_modeling", "--arch", "transformer_lm"),
        *("--decoder-layers", 1, "--decoder-embed-dim", 8, "--decoder-ffn-embed-dim", 8),
        *("--decoder-attention-heads", 2, "--optimizer", "adam", "--max-epoch", 1, *PLUGIN),
        *("--tokens-per-sample", 16, "--max-tokens", 200, "--save-dir", run, "--num-workers", 0),
    )
    return data, run / "checkpoint_last.pt"


@pytest.mark.parametrize("tokens", [None, 17])
def test_perplexity_of_text_left_out_is_an_error(language_model, tokens):
    data, path = language_model
    flags = ("--tokens-per-sample", tokens) if tokens else ()
    message = commands.run("eval_lm", data, "--path", path, "--cpu", *flags, *PLUGIN).message()
    assert "--tokens-per-sample 16" in message


def test_perplexity_is_of_every_token(folder, language_model):
    data, path = language_model
    flags = ("--tokens-per-sample", 16, "--context-window", 5, "--batch-size", 1)
    finished = commands.succeed("eval_lm", data, "--path", path, "--cpu", *flags, *PLUGIN)
    tokens = sum(len(line.split()) + 1 for line in (folder / "test9.a").read_text().splitlines())
    assert f"Evaluated {tokens} tokens" in finished.out + finished.err


# --user-dir


def import_plugin(path):
    utils.import_user_module(Namespace(user_dir=str(path)))


def test_the_imported_plugin_may_be_given_by_any_path(tmp_path, monkeypatch):
    models = len(fairseq_posenc.models.__dict__)
    (tmp_path / "fairseq_posenc").symlink_to(PACKAGE)
    (tmp_path / "by_another_name").symlink_to(PACKAGE)
    monkeypatch.chdir(PACKAGE.parent)
    for path in (
        *(PACKAGE, f"{PACKAGE}/", "fairseq_posenc", "./fairseq_posenc/", f"{PACKAGE}/models/.."),
        *(tmp_path / "fairseq_posenc", f"{tmp_path}/fairseq_posenc/", tmp_path / "by_another_name"),
    ):
        import_plugin(path)
    assert len(fairseq_posenc.models.__dict__) == models and "by_another_name" not in sys.modules


def test_another_copy_is_refused_by_both_names(tmp_path):
    other = tmp_path / "fairseq_posenc"
    other.mkdir()
    (other / "__init__.py").write_text("raise AssertionError('imported')\n")
    for path in (other, f"{other}/"):
        with pytest.raises(UsageError) as error:
            import_plugin(path)
        assert str(other) in str(error.value) and str(PACKAGE) in str(error.value)


def test_other_plugins_are_imported_as_ever(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    name = f"plugin_{tmp_path.name}"
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text("loaded = True\n")
    for _ in range(2):
        import_plugin(tmp_path / name)
    assert sys.modules.pop(name).loaded
    with pytest.raises(FileNotFoundError):
        import_plugin(tmp_path / "nowhere")
    utils.import_user_module(Namespace(user_dir=None))


def test_command_line_with_another_spelling_of_the_folder(folder, trained, tmp_path):
    link = tmp_path / "fairseq_posenc"
    link.symlink_to(PACKAGE)
    flags = ("--path", trained, "--cpu", "--beam", 1, "--max-len-b", 3, "--user-dir", f"{link}/")
    assert commands.succeed("generate", folder / "data", *flags).hypotheses()


# NumPy 2


def test_compat_long_is_there_when_numpy_has_it_no_more(monkeypatch):
    if hasattr(np, "compat"):
        monkeypatch.delattr(np, "compat")
    numpy2.numpy_compat_long()
    sizes = [3, 1, 4]
    blocks = TokenBlockDataset(
        *([torch.ones(size).long() for size in sizes], sizes, None), pad=0, eos=2, break_mode="eos"
    )
    assert [len(block) for block in blocks] == sizes


@pytest.mark.parametrize("number", [1, 2, 3, 7, 50])
def test_buckets_are_lower_percentiles(number):
    sizes = np.random.RandomState(number).randint(1, 100, 64)
    ordered = sorted(sizes.tolist())
    positions = [int((len(sizes) - 1) * rank / number + 1e-9) for rank in range(1, number + 1)]
    expected = sorted({ordered[position] for position in positions})
    assert numpy2._with_method(lambda *_: None)(sizes, number).tolist() == expected
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for module in (data_utils, bucket_pad_length_dataset):
            assert module.get_buckets(sizes, number).tolist() == expected


# The fast path of fairseq 0.12.2


def encoder_layer():
    cfg = TransformerConfig()
    cfg.encoder.embed_dim = cfg.encoder.ffn_embed_dim = 8
    cfg.encoder.attention_heads = 2
    cfg.dropout = 0.0
    return TransformerEncoderLayerBase(cfg)


NAMES = {
    *(f"self_attn.{x}_proj.{y}" for x in ("q", "k", "v", "out") for y in ("weight", "bias")),
    *(f"{x}.{y}" for x in ("fc1", "fc2") for y in ("weight", "bias")),
    *(f"{x}_layer_norm.{y}" for x in ("self_attn", "final") for y in ("weight", "bias")),
}


def test_a_layer_calls_its_attention_after_loading():
    layer = encoder_layer()
    compat.no_fast_path(layer)
    assert {name for name, _ in layer.named_parameters()} == set(layer.state_dict()) == NAMES
    other = copy.deepcopy(layer)
    layer.load_state_dict(layer.state_dict())
    other.load_state_dict(layer.state_dict())
    x = torch.randn(5, 3, 8)
    padding = torch.tensor([[True, False, False, False, False], *[[False] * 5] * 2])
    expected = layer.train()(x, padding)  # with dropout 0, and never a fast path
    calls = []
    other.self_attn.register_forward_hook(lambda *_: calls.append(1))
    with torch.no_grad():
        torch.testing.assert_close(other.eval()(x, padding), expected)
        other(x, None)
    assert len(calls) == 2


def test_a_layer_loads_what_fairseq_0_12_2_saved_and_still_refuses_other_names():
    layer = encoder_layer()
    compat.no_fast_path(layer)
    state = {name: torch.randn_like(value) for name, value in layer.state_dict().items()}
    official = dict(state, in_proj_weight=torch.randn(24, 8), fc1_bias=torch.zeros(8))
    stack = torch.nn.ModuleList([layer])
    stack.load_state_dict({f"0.{name}": value for name, value in official.items()})
    for name, value in layer.state_dict().items():
        assert torch.equal(value, state[name])
    with pytest.raises(RuntimeError, match="in_proj_x"):
        layer.load_state_dict(dict(official, in_proj_x=torch.zeros(1)))
    del state["fc1.bias"]
    with pytest.raises(RuntimeError, match="fc1.bias"):
        layer.load_state_dict(state)


# PyTorch


def test_versions_are_read_from_any_spelling():
    from fairseq_posenc.compat.versions import parse_version

    spellings = {"2.13.0+cpu": (2, 13), "1.13.0a0+git1": (1, 13), "2.0": (2, 0)}
    assert {text: parse_version(text) for text in spellings} == spellings
    with pytest.raises(ValueError):
        parse_version("nightly")


def test_attention_constants_tell_the_truth():
    attend = getattr(torch.nn.functional, "scaled_dot_product_attention", None)
    assert compat.HAS_SDPA == (attend is not None)
    if attend is None:
        assert not compat.SDPA_HAS_SCALE and not compat.SDPA_SAFE_MASKS
        return
    q = torch.randn(1, 1, 3, 8, requires_grad=True)
    assert compat.SDPA_HAS_SCALE == ("scale" in (attend.__doc__ or ""))
    mask = torch.zeros(3, 3)
    mask[1] = float("-inf")
    out = attend(q, q, q, attn_mask=mask)
    out.sum().backward()
    safe = bool(out[0, 0, 1].eq(0).all()) and bool(torch.isfinite(q.grad).all())
    assert safe or not compat.SDPA_SAFE_MASKS
