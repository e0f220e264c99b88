"""The files of docs/adding.md do what the page says, and so does the encoding in README.md."""

import re

import pytest
import torch
from support.commands import ROOT, SEARCH, SMALL, TRAINING, posenc, run, succeed
from support.expressed import trained
from support.helpers import decode_in_steps, sentences
from support.masked_lm_runs import CLASSIFY, SHAPE
from support.own_extensions import FILE, files, own_model, registries_as_before

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.checkpoints.reading import load_file
from fairseq_posenc.checkpoints.settings import saved_settings
from fairseq_posenc.exchange import FORMATS

(README,) = FILE.findall((ROOT / "README.md").read_text(encoding="utf-8"))
ROTARY = ["--position-encoding", "rotary"]
README = README[1]  # the lines that add an encoding
pytest_plugins = ["support.toy", "support.own_extensions", "support.masked_lm_runs"]


def train(own, toy, folder, *flags):
    arch = ["--arch", "posenc_transformer", *SMALL]
    return succeed("train", toy, *own, "--save-dir", folder, *TRAINING, *arch, *flags)


def generate(own, toy, folder, *flags):
    path = folder / "checkpoint_last.pt"
    return run("generate", toy, *own, "--path", path, *SEARCH, *flags)


@pytest.fixture(scope="module")
def gaussian(own, toy, tmp_path_factory):
    """The folder of a model with a user-defined preset and a user-defined encoding."""
    folder = tmp_path_factory.mktemp("gaussian")
    train(own, toy.separate, folder, "--arch", "gaussian_small", "--gaussian-width", "4")
    return folder


def test_an_encoding_with_flags_decodes_and_takes_overrides(own, toy, gaussian, tmp_path):
    plain = generate(own, toy.separate, gaussian).hypotheses()
    assert len(plain) == 24
    stretched = generate(
        own, toy.separate, gaussian, "--model-overrides", "{'gaussian_stretch': 9.0}"
    )
    assert stretched.status == 0 and stretched.hypotheses() != plain
    refused = generate(own, toy.separate, gaussian, "--model-overrides", "{'gaussian_width': 9.0}")
    assert "gaussian_width=9.0" in refused.message() and "trained with 4.0" in refused.message()
    listed, path = posenc("list", *own).out, gaussian / "checkpoint_last.pt"
    assert "  gaussian         a penalty on the logits" in listed
    assert posenc("plot", "positions", path, tmp_path / "out.png", *own).status == 0
    assert saved_settings(load_file(path))["position_encoding"] == "gaussian"


def test_an_encoding_of_ones_own_is_exported_to_ctranslate2(own, gaussian, tmp_path):
    pytest.importorskip("ctranslate2", reason="exported models need CTranslate2")
    arguments = ("ctranslate2", gaussian / "checkpoint_last.pt", tmp_path / "out", "--verify")
    assert "gaussian" in posenc("export", *arguments).message()
    done = posenc("export", *arguments, *own)
    assert (done.status, done.err) == (0, "") and "largest difference from fairseq" in done.out


def test_other_parts_go_through_every_command(own, toy, tmp_path):
    """One model has a user-defined kernel, norm, feed-forward network, stack and position rule."""
    parts = ["--attention", "relu_power", "--linear-rotary", "inputs", "--norm", "scale", *ROTARY]
    parts += ["--feed-forward", "squared_glu", "--loops", "2", "--position-ids", "clauses"]
    whole = tmp_path / "whole"
    train(own, toy.separate, whole, *parts, "--max-epoch", "2")
    inputs = [whole / f"checkpoint{epoch}.pt" for epoch in (1, 2)]
    output = tmp_path / "mean" / "checkpoint_last.pt"
    output.parent.mkdir()
    done = posenc("average", "--inputs", *inputs, "--output", output, *own)
    assert done.status == 0, done.err
    assert len(generate(own, toy.separate, output.parent).hypotheses()) == 24
    assert saved_settings(load_file(output))["position_ids"] == "clauses"


def test_a_head_of_pre_training_is_trained_and_left_out_of_fine_tuning(own, corpora, tmp_path):
    task = ["--task", "masked_lm_middle", "--criterion", "masked_lm_middle"]
    task += ["--arch", "roformer_masked_lm_tiny", *SHAPE, "--tokens-per-sample", "32"]
    first, tuned = tmp_path / "first", tmp_path / "tuned"
    done = succeed("train", corpora.text, *own, "--save-dir", first, *TRAINING, *task)
    (entry,) = done.entries("valid")
    assert float(entry["valid_middle_loss"]) > 0 and float(entry["valid_accuracy"]) >= 0
    last = first / "checkpoint_last.pt"
    state = load_file(last)["model"]
    assert state["middle_head.weight"].shape == (16, 16)
    start = ["--arch", "posenc_masked_lm", "--finetune-from-model", last, *CLASSIFY]
    start += ["--num-classes", "2"]
    done = succeed("train", corpora.pairs, *own, "--save-dir", tuned, *TRAINING, *start)
    assert "left out middle_head, which only --task masked_lm_middle needs" in done.out + done.err
    assert "middle_head.weight" not in load_file(tuned / "checkpoint_last.pt")["model"]


def test_a_change_to_a_model_trains_a_part_and_saves_it_alone(own, toy, trained, tmp_path):
    base = trained / "checkpoint_last.pt"
    flags = ("--arch", "roformer_tiny", *SMALL, "--bias-base", base)
    succeed("train", toy.separate, *own, "--save-dir", tmp_path, *TRAINING, *flags)
    path, before = tmp_path / "checkpoint_last.pt", load_file(base)["model"]
    after = load_file(path)["model"]
    assert {name for name in after if not name.endswith("bias")} == {"biases_alone"}
    assert any(not torch.equal(after[name], before[name]) for name in before if name in after)
    assert len(generate(own, toy.separate, tmp_path).hypotheses()) == 24
    done = posenc("average", "--inputs", path, "--output", tmp_path / "out.pt", *own)
    assert f"{path}: holds biases alone; give a checkpoint" in done.message()


@torch.no_grad()
@pytest.mark.parametrize(
    "text, flags",
    [
        ("mine/counted_steps.py", [*ROTARY, "--count-steps"]),
        ("mine/cosine.py", ["--attention", "cosine", *ROTARY]),
        ("README.md", ["--position-encoding", "logarithm"]),
    ],
)
def test_cached_steps_of_the_page_and_the_readme(text, flags):
    with registries_as_before():
        code = files()[text] if text != "README.md" else README
        exec(compile(code, text, "exec"), {"__name__": text})
        model = own_model(*flags)
        source, target = sentences(3, 7), sentences(3, 6, seed=1)
        steps = decode_in_steps(model, source, target, [1] * 6)
        torch.testing.assert_close(steps, model(source, None, target)[0], atol=1e-5, rtol=0)
        counted = getattr(model.decoder.steps, "count", None)
        assert counted == (target.numel() if "--count-steps" in flags else None)
    assert len(README.splitlines()) <= 12


def test_flags_of_ones_own_are_checked():
    with registries_as_before():
        for path, flags, message in (
            ("looped", ["--loops", "2", "--encoder-layerdrop", "0.2"], "--loops 2: each loop"),
            ("relu_power", ["--relu-power", "0"], "--relu-power 0: must be at least 1 and at"),
        ):
            exec(compile(files()[f"mine/{path}.py"], path, "exec"), {"__name__": path})
            with pytest.raises(UsageError, match=message):
                own_model(*flags)


def test_a_format_of_ones_own_goes_there_and_back(own, tmp_path):
    ours, there, back = trained(tmp_path / "ours"), tmp_path / "there", tmp_path / "back"
    done = posenc("export", "plain", ours, there, *own, "--indent", "3")
    assert (done.status, done.err) == (0, "") and f"wrote {there}/weights.npz" in done.out
    assert (there / "model.json").read_text().startswith('{\n   "')
    done = posenc("import", "plain", there, back, *own)
    assert (done.status, done.err) == (0, "") and f"wrote {back}/checkpoint.pt" in done.out
    before, after = (load_file(path)["model"] for path in (ours, back / "checkpoint.pt"))
    assert before.keys() == after.keys()
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    assert (ours.parent / "dict.txt").read_text().split()[::2] == ["a", "b"]


def test_a_class_of_transformers_of_ones_own_goes_there_and_back(own, tmp_path):
    """A table suffices for import, export, dropout settings and the comparison of logits."""
    transformers = pytest.importorskip("transformers", reason="the classes are in transformers")
    sizes = {"hidden_size": 16, "word_embed_proj_dim": 16, "ffn_dim": 24, "vocab_size": 14}
    rates = {"dropout": 0.2, "attention_dropout": 0.05, "layerdrop": 0.03}
    config = transformers.OPTConfig(
        **sizes, **rates, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=40
    )
    model, theirs = transformers.OPTForCausalLM(config), tmp_path / "theirs"
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(theirs)
    (theirs / "dict.txt").write_text("".join(f"w{number} 1\n" for number in range(10)))
    ours, again, back = (tmp_path / name for name in ("ours", "again", "back"))
    for way, source, out, *verify in (
        ("import", theirs, ours, "--verify"),
        ("export", ours / "checkpoint.pt", again, "--verify"),
        ("import", again, back),
    ):
        done = posenc(way, "hf-opt", source, out, *own, *verify)
        assert (done.status, done.err) == (0, "")
        assert ("OPTForCausalLM of transformers" in done.out) == bool(verify)
    before, after = (load_file(folder / "checkpoint.pt") for folder in (ours, back))
    kept = {"dropout": 0.2, "attention_dropout": 0.05, "decoder_layerdrop": 0.03}
    assert before["cfg"]["model"].items() >= kept.items()
    assert all(torch.equal(x, after["model"][name]) for name, x in before["model"].items())


def test_a_format_of_ones_own_refuses_like_the_others(own, tmp_path):
    out, linear = tmp_path / "out", trained(tmp_path / "linear", attention="elu")
    for name, path, flags, said in (
        ("plain", linear, own, "--attention elu.*the format plain"),
        ("plain", trained(tmp_path / "ours"), (*own, "--verify"), "--verify: nothing can run"),
        ("hf-llama", linear, (*own, "--indent", "3"), "--indent 3: is for export plain"),
    ):
        assert re.search(said, posenc("export", name, path, out, *flags).message()), said
    shown = posenc("export", "plain", "--help", *own).out
    assert "--indent N" in shown and "--head NAME" in shown and "--quantization" not in shown
    assert "plain" not in FORMATS and not out.exists()
