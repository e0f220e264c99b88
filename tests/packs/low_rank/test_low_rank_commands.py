"""Low-rank adaptation through the commands: train, resume, average, merge, translate."""

import shutil

import torch
from support.commands import SMALL, average, check_same, generate, train
from support.conversion import refuses

from fairseq_posenc.checkpoints.reading import read_checkpoint
from fairseq_posenc.cli import main

pytest_plugins = ["support.toy"]


def test_matrices_train_resume_average_merge_and_translate(toy, trained, tmp_path):
    base, whole, rest = trained / "checkpoint_last.pt", tmp_path / "whole", tmp_path / "rest"
    lora = ["--lora-rank", "2", "--lora-base", base, "--lora-layers", "q_proj,fc1"]
    flags = ["--arch", "roformer_tiny", *SMALL, *lora, "--update-epoch-batch-itr", "True"]
    flags += ["--max-epoch", "2"]
    losses = train(toy.separate, whole, *flags, "--save-interval-updates", "6").losses()
    state = read_checkpoint(str(whole / "checkpoint_last.pt"))["model"]
    kept = {name for name in state if ".lora_" not in name}
    assert kept == {"low_rank_base"} and len(state) > 1
    rest.mkdir()
    shutil.copy(whole / "checkpoint_2_6.pt", rest / "checkpoint_last.pt")
    assert train(toy.separate, rest, *flags).losses().items() <= losses.items()
    checkpoint, merged = whole / "checkpoint2.pt", tmp_path / "merged"
    apart = generate(toy.separate, checkpoint).hypotheses()
    moved = tmp_path / "moved.pt"
    shutil.copy(base, moved)
    merged.mkdir()
    for name in ("checkpoint1.pt", "checkpoint2.pt"):
        words = [str(whole / name), str(merged / name)]
        main(["merge-lora", *words, "--lora-base", str(moved)])
    check_same(generate(toy.separate, merged / "checkpoint2.pt").hypotheses(), apart)
    mean = read_checkpoint(str(average(merged, "--num-epoch-checkpoints", "2")))["model"]
    frozen = read_checkpoint(str(base))["model"]
    assert set(mean) == set(frozen)
    epochs = [read_checkpoint(str(whole / f"checkpoint{n}.pt"))["model"] for n in (1, 2)]
    name = "encoder.layers.0.fc1"
    products = [one[f"{name}.lora_B"] @ one[f"{name}.lora_A"] for one in epochs]
    adapted = frozen[f"{name}.weight"] + 16 / 2 * sum(products) / 2
    torch.testing.assert_close(mean[f"{name}.weight"], adapted, rtol=0, atol=1e-6)
    words = [f"{checkpoint}: holds low-rank matrices alone"]
    out = ("--output", tmp_path / "out")
    refuses(words, "average", "--inputs", checkpoint, whole / "checkpoint1.pt", *out)
    refuses(words, "export", "ctranslate2", checkpoint, tmp_path / "out")
    refuses(words, "plot", "positions", checkpoint, tmp_path / "out.svg")
    refuses(words, "analyse", checkpoint, toy.text / "valid.src")
    refuses(words, "pack", checkpoint, tmp_path / "out", "--data", toy.separate)
