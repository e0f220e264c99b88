"""Plans whose runs start from a trained model, and what the report says of them."""

import csv
import io

import pytest
from support.made_up_studies import make
from support.studies import CPU, message

from fairseq_posenc.study.checks import check_plan
from fairseq_posenc.study.logs import read_training
from fairseq_posenc.study.report import build, to_markdown
from fairseq_posenc.study.report.warm_starts import Start, starts_of, warm_start_section
from fairseq_posenc.study.results import load_results, to_csv
from fairseq_posenc.study.runs import specs

pytest_plugins = ["support.studies", "support.made_up_studies"]


@pytest.fixture
def started(read, plan, tmp_path):
    """The runs of a plan whose systems start from a checkpoint of each seed, by flag *flag*."""

    def started(flag="--finetune-from-model", **changes):
        base = {**plan["base"], flag: str(tmp_path / "base-{seed}.pt")}
        return read(base=base, **changes)

    return started


def write_bases(tmp_path, text="weights"):
    for seed in (1, 2):
        (tmp_path / f"base-{seed}.pt").write_text(f"{text} {seed}")


def test_each_seed_starts_from_a_checkpoint_of_its_own(started, tmp_path):
    for flag in ("--finetune-from-model", "--lora-base"):
        for spec in specs(started(flag), {}):
            words = spec.steps[0].words
            assert words[words.index(flag) + 1] == str(tmp_path / f"base-{spec.seed}.pt")


def test_the_content_of_the_checkpoint_is_part_of_a_runs_identity(started, tmp_path):
    from fairseq_posenc.steps.markers import digest_of

    write_bases(tmp_path)
    first = [spec.digest for spec in specs(started(), {})]
    digest_of.cache_clear()
    assert [spec.digest for spec in specs(started(), {})] == first
    write_bases(tmp_path, "others")
    digest_of.cache_clear()
    assert not set(first) & {spec.digest for spec in specs(started(), {})}
    digest_of.cache_clear()


def test_a_missing_checkpoint_is_named_before_anything_runs(started, tmp_path):
    said = message(check_plan, started(), CPU)
    assert said == (
        f"systems: rotary: {tmp_path}/base-1.pt: no such file to start from; train it first"
    )
    assert f"# {said}" in check_plan(started(), CPU, without_data=True)
    write_bases(tmp_path)
    assert check_plan(started(), CPU) == []


def test_low_rank_matrices_are_not_averaged(started, tmp_path):
    write_bases(tmp_path)
    said = message(check_plan, started("--lora-base", average=2), CPU)
    assert said.startswith("average: epochs: 2: checkpoints of ")
    assert "hold low-rank matrices alone, which are not averaged; drop average" in said


def test_nothing_is_translated_for_losses_alone(read):
    names = [step.name for step in specs(read(measures=["loss", "perplexity"]), {})[0].steps]
    assert names == ["train", "average", "validate"]
    names = [step.name for step in specs(read(measures=["loss", "chrf"]), {})[0].steps]
    assert names[-2:] == ["decode", "score"]


def test_trained_parameters_are_read_from_the_log(tmp_path):
    lines = [
        "num. shared model params: 1,000 (num. trained: 200)\n",
        '{"epoch": 1, "valid_loss": "8.5", "valid_num_updates": "0"}\n',
        '{"epoch": 1, "train_wpb": "10.5", "train_num_updates": "4", "train_train_wall": "3"}\n',
    ]
    (tmp_path / "train.log").write_text("".join(lines))
    found = read_training(tmp_path)
    assert (found["parameters"], found["trained"]) == (1000, 200)
    assert found["curve"] == [{"update": 0, "valid_loss": 8.5}]


def curves(result):
    """Losses of 5 at update 0 of the baseline; rotary comes back at update 2, t5 never."""
    of_system = {"stock": (5, 4.5, 4), "rotary": (7, 6, 4.75), "t5": (9, 8, 7)}
    losses = of_system[result["system"]]
    result["curve"] = [{"update": n, "valid_loss": loss} for n, loss in enumerate(losses)]
    result.update(trained=100, parameters=1000, updates=10, seconds={"train": 3})


def test_what_is_lost_and_won_back(tmp_path, undrawn):
    study = load_results(make(tmp_path / "study", change=curves, baseline="stock"))
    assert starts_of(study, "stock") == [Start(0, 0, 1)] * 2
    assert starts_of(study, "rotary") == [Start(2, 2, 0.25)] * 2
    assert starts_of(study, "t5") == [Start(4, None, -2)] * 2
    (table,) = warm_start_section(study).parts
    rows = {row[0]: row[1:] for row in table.rows}
    assert rows["rotary"][1] == "2, 2" and rows["t5"][1] == "–, –"
    assert rows["t5"][0].startswith("4.000") and rows["t5"][2].startswith("−2.000")
    assert rows["stock"][3:] == ["100 (10.0 %)", "30.00"]
    assert "## From a trained model" in to_markdown(build(study))
    rows = list(csv.DictReader(io.StringIO(to_csv(study))))
    t5 = next(row for row in rows if row["system"] == "t5")
    assert [t5[name] for name in ("trained", "loss_at_0", "loss_at_2")] == ["100", "9", "7"]


def test_studies_without_update_0_have_no_such_section(tmp_path, undrawn):
    study = load_results(make(tmp_path / "study"))
    assert warm_start_section(study).parts == []
    assert "loss_at" not in to_csv(study) and "trained" not in to_csv(study)
