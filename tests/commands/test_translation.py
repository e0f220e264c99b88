"""Translation models in fairseq's commands: from text to output, searches, Hydra, warm starts."""

import os
import re
import shutil

import pytest
import torch
from support.commands import (
    NO_DROPOUT,
    ROOT,
    SMALL,
    USER_DIR,
    Command,
    average,
    check_same,
    generate,
    interactive,
    pruned,
    read,
    refusal,
    succeed,
    train,
    validate,
)
from support.warm_starts import carried_over, starting_from

from fairseq_posenc.checkpoints.reading import read_checkpoint

pytest_plugins = ["support.toy"]
pytestmark = pytest.mark.journeys

ROFORMER = ["--arch", "roformer_tiny", *SMALL]
# without this flag, batches depend on the epoch in which a run begins, so a resumed run differs
SAME_BATCHES = ["--update-epoch-batch-itr", "True"]


@pytest.fixture(scope="module")
def plain(toy, tmp_path_factory):
    """Losses of the RoFormer without further flags."""
    return train(toy.joined, tmp_path_factory.mktemp("plain"), *ROFORMER).losses()


def test_training_resuming_averaging_and_generating(toy, tmp_path):
    whole, rest = tmp_path / "whole", tmp_path / "rest"
    flags = [*ROFORMER, *SAME_BATCHES, "--max-epoch", "2"]
    losses = train(toy.separate, whole, *flags, "--save-interval-updates", "6").losses()
    assert len(losses) == 12  # eight updates; training and validation of two epochs
    rest.mkdir()
    shutil.copy(whole / "checkpoint_2_6.pt", rest / "checkpoint_last.pt")  # within the second epoch
    resumed = train(toy.separate, rest, *flags).losses()
    assert resumed.keys() == {"update 7", "update 8", "train 2", "valid 2"}
    assert resumed.items() <= losses.items()
    last = validate(toy.separate, rest / "checkpoint_last.pt", "--max-tokens", "100")
    (entry,) = last.entries("valid")
    assert float(entry["valid_loss"]) == pytest.approx(losses["valid 2"], abs=2e-3)
    checkpoint = average(whole, "--num-epoch-checkpoints", "2")
    assert sorted(generate(toy.separate, checkpoint).hypotheses()) == list(range(24))


def test_quantisation_noise_is_in_training_alone(toy, tmp_path, plain):
    noise = ["--quant-noise-pq", "0.5", "--quant-noise-pq-block-size", "4"]
    losses = train(toy.joined, tmp_path, *ROFORMER, *noise).losses()
    assert losses["update 1"] != plain["update 1"]
    found = [generate(toy.joined, tmp_path / "checkpoint_last.pt").hypotheses() for _ in range(2)]
    assert found[0] == found[1] and len(found[0]) == 24


@pytest.mark.gpu
def test_scalar_quantisation_noise(toy, tmp_path, plain):
    """fairseq moves the scales of this noise to CUDA, also in stock models."""
    losses = train(toy.joined, tmp_path, *ROFORMER, "--quant-noise-scalar", "0.5").losses()
    assert losses["update 1"] != plain["update 1"]


def test_keeping_some_layers_is_the_model_with_those_layers(toy, tmp_path):
    layers = ["--encoder-layers", "3", "--decoder-layers", "3"]
    drop = ["--encoder-layerdrop", "0.2", "--decoder-layerdrop", "0.2"]
    # an encoding whose layers have terms of their own
    shaw = ["--position-encoding", "shaw"]
    train(toy.separate, tmp_path, *ROFORMER, *layers, *drop, *shaw)
    checkpoint, keep = tmp_path / "checkpoint_last.pt", {"encoder": [0, 2], "decoder": [1]}
    overrides = {f"{side}_layers_to_keep": ",".join(map(str, k)) for side, k in keep.items()}
    found = generate(toy.separate, checkpoint, "--model-overrides", str(overrides)).hypotheses()
    assert found == generate(toy.separate, pruned(checkpoint, keep)).hypotheses()
    assert found != generate(toy.separate, checkpoint).hypotheses()


def test_bleu_while_training(toy, tmp_path):
    bleu = ["--eval-bleu", "--eval-bleu-args", '{"beam": 2, "max_len_b": 10}']
    bleu += ["--best-checkpoint-metric", "bleu", "--maximize-best-checkpoint-metric"]
    first = train(toy.separate, tmp_path, *ROFORMER, *bleu).entries("valid")
    # the checkpoint holds BLEU's counts, which are NumPy arrays
    second = train(toy.separate, tmp_path, *ROFORMER, *bleu, "--max-epoch", "2").entries("valid")
    assert [entry["epoch"] for entry in first + second] == [1, 2]
    assert all(float(entry["valid_bleu"]) >= 0 for entry in first + second)
    assert len(generate(toy.separate, tmp_path / "checkpoint_best.pt").hypotheses()) == 24


# --- searches


def lines_of(finished, letter):
    """Lines of one kind in the output, by sentence number: S source, T target, A alignment."""
    found = re.findall(rf"^{letter}-(\d+)\t(.*)$", finished.out, re.MULTILINE)
    return {int(number): text for number, text in found}


@pytest.fixture(scope="module")
def checkpoint(trained):
    return trained / "checkpoint_last.pt"


@pytest.fixture(scope="module")
def best(toy, checkpoint):
    """The output of the usual search, for comparison."""
    return generate(toy.separate, checkpoint)


def test_interactive_agrees_with_generate_in_other_batches(toy, checkpoint, best):
    sources = lines_of(best, "S")
    lines = [sources[number] for number in sorted(sources)]
    found = interactive(toy.separate, checkpoint, lines, "--buffer-size", "9")
    check_same(found.hypotheses(), best.hypotheses())


def test_the_longest_text_is_that_of_the_training(toy, checkpoint, tmp_path):
    """By default, the task of fairseq-interactive accepts 1,024 tokens."""
    state, limits = read_checkpoint(checkpoint), {"max_source_positions": 1100}
    for section in ("task", "model"):
        settings = state["cfg"][section]
        (settings if isinstance(settings, dict) else vars(settings)).update(limits)
    torch.save(state, tmp_path / "longer.pt")
    line, few = " ".join(["a1"] * 1050), ["--max-len-b", "1"]
    for path, flags in ((tmp_path / "longer.pt", []), (checkpoint, ["--model-overrides", limits])):
        assert interactive(toy.separate, path, [line], *few, *flags).hypotheses()


def test_hard_alignments_name_a_source_word_for_every_target_word(toy, checkpoint, best):
    found = generate(toy.separate, checkpoint, "--print-alignment")
    check_same(found.hypotheses(), best.hypotheses())
    sources, alignments = lines_of(found, "S"), lines_of(found, "A")
    for number, [(_, text)] in found.hypotheses().items():
        links = [tuple(map(int, link.split("-"))) for link in alignments[number].split()]
        assert [target for _, target in links] == list(range(len(text.split())))
        assert all(0 <= source < len(sources[number].split()) for source, _ in links)


# --- fairseq-hydra-train


CONFIG = ["--config-dir", ROOT / "examples" / "hydra", "--config-name"]
SHIPPED = [*CONFIG, "roformer", f"common.user_dir={USER_DIR[1]}"]
# settings that make a test small
QUICK = ["common.cpu=true", "dataset.num_workers=0", "optimization.max_epoch=1"]


def test_the_plug_in_is_found_in_the_current_folder_and_another_file_is_not(
    toy, tmp_path, monkeypatch
):
    """Hydra accepts any --config-name, because fairseq registers the given name."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fairseq_posenc").symlink_to(ROOT / "fairseq_posenc")
    data = [f"task.data={toy.separate}", "checkpoint.no_save=true", *QUICK]
    succeed("hydra_train", *CONFIG, "roformer", *data)
    other = [*CONFIG, "roformr", "common.user_dir=fairseq_posenc", "hydra.run.dir=."]
    message = Command("fairseq_cli.hydra_train", other).finish().message()
    assert "task._name: missing; is --config-name the name of a file" in message


def test_jobs_of_a_multirun_have_a_folder_each_beside_each_other(toy, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = f"task.data={os.path.relpath(toy.separate)}"
    swept = ["model.position_encoding=learned,t5", "model.encoder_embed_dim=16"]
    swept += ["+model.decoder_ffn_embed_dim=48"]
    swept += ["checkpoint.save_dir=run/${model.position_encoding}"]
    succeed("hydra_train", "-m", *SHIPPED, data, *QUICK, *swept)
    for encoding in ("learned", "t5"):
        parameters, settings = read(tmp_path / "run" / encoding / "checkpoint_last.pt")
        assert settings["position_encoding"] == encoding
        assert settings["encoder_attention_heads"] == 4  # as in roformer_tiny
        assert parameters["decoder.layers.1.fc1.weight"].shape == (48, 16)
        assert ("encoder.embed_positions.weight" in parameters) == (encoding == "learned")
        found = generate(toy.separate, tmp_path / "run" / encoding / "checkpoint_last.pt")
        assert len(found.hypotheses()) == 24


# --- continuing with a different position encoding


LEARNED_TABLES = ["decoder.embed_positions.weight", "encoder.embed_positions.weight"]
LEARNED = ["--encoder-learned-pos", "--decoder-learned-pos"]
LEARNED_POSITIONS = ["--arch", "posenc_transformer", "--position-encoding", "learned"]


@pytest.fixture(scope="module")
def stock(toy, tmp_path_factory):
    """Checkpoint of fairseq's transformer, with sinusoidal positions."""
    folder = tmp_path_factory.mktemp("stock")
    train(toy.separate, folder, "--arch", "transformer", *SMALL)
    return folder / "checkpoint_last.pt"


def test_a_model_continues_with_another_encoding(toy, trained, tmp_path):
    learned = tmp_path / "learned" / "checkpoint_last.pt"
    train(toy.separate, learned.parent, "--arch", "transformer", *SMALL, *LEARNED)
    for source, flags, by, *changes in (
        (learned, ROFORMER[:2], "--finetune-from-model", LEARNED_TABLES, []),
        (trained / "checkpoint_last.pt", LEARNED_POSITIONS, "--restore-file", [], LEARNED_TABLES),
    ):
        folder = tmp_path / by
        log = train(toy.separate, folder, *SMALL, *flags, *starting_from(source, by))
        assert list(carried_over(log, source, folder)) == changes


def test_sizes_that_differ_are_named(toy, stock, tmp_path):
    message = refusal(toy.separate, tmp_path, *ROFORMER[:2], "--finetune-from-model", stock)
    assert "size mismatch for encoder.embed_tokens.weight" in message
    sizes = message.partition("give its ")[2]
    for size in ("embed-dim 16", "ffn-embed-dim 24", "attention-heads 2"):
        assert f"--encoder-{size}" in sizes
    assert "layers" not in sizes  # equal in both models


def test_a_training_goes_on_from_the_loss_it_had(toy, stock, tmp_path):
    """With stock's weights and optimiser state, our sinusoidal model has the losses of stock."""
    flags = ["--arch", "transformer", *SMALL, *NO_DROPOUT, "--max-epoch", "2"]
    expected = train(toy.separate, tmp_path / "stock", *flags, "--restore-file", stock).losses()
    flags[1] = "posenc_transformer"
    found = train(toy.separate, tmp_path / "ours", *flags, "--restore-file", stock).losses()
    assert len(found) > 2
    assert found == pytest.approx(expected, abs=2e-3)


def test_the_optimizer_of_other_parameters_is_refused(toy, trained, tmp_path):
    """The optimiser numbers parameters, so it would apply states to the wrong parameters."""
    flags = [*LEARNED_POSITIONS, *SMALL]
    start = ["--restore-file", trained / "checkpoint_last.pt", "--max-epoch", "2"]
    message = refusal(toy.separate, tmp_path, *flags, *start)
    assert "decoder.embed_positions.weight" in message and "--finetune-from-model" in message
    sinusoidal = ["--position-encoding", "sinusoidal", *start]  # no table of positions in the model
    log = train(toy.separate, tmp_path, *flags, *sinusoidal)
    assert "warm start: --position-encoding rotary -> sinusoidal" in log.out + log.err
