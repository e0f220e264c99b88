"""The section of generated tasks: the map of breaking lengths, means over tasks, and curves."""

import json
import math

import numpy as np
import pytest
import yaml
from scipy.stats import trim_mean
from support.made_up_studies import undraw

from fairseq_posenc.study import aggregates, report
from fairseq_posenc.study.report import figures, heat
from fairseq_posenc.study.report.lengths import lengths_section
from fairseq_posenc.study.results import load_results

TASKS = {"copy": 10, "sort": 4, "parity": 2}  # the longest length of the training
RIGHT = {  # by system and seed: copy at 5, 10, 20 and 40, sort at 4 and 8, and parity at 2 and 4
    "none": {1: ([100, 50, 0, 0], [50, 50], [0, 0]), 2: ([90, 40, 0, 0], [40, 60], [0, 0])},
    "rotary": {1: ([100, 100, 95, 0], [90, 40], [0, 0]), 2: ([100, 100, 20, 0], [50, 50], [0, 0])},
    "fire": {
        1: ([100, 100, 100, 100], [50, 50], [100, 50]),
        2: ([100, 100, 100, 99], [50, 50], [100, 50]),
    },
}
LENGTHS = {"copy": (5, 10, 20, 40), "sort": (4, 8), "parity": (2, 4)}


@pytest.fixture
def study(tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "to_svg", undraw)
    monkeypatch.setattr(heat, "to_svg", undraw)
    plan = {
        "name": "lengths", "systems": dict.fromkeys(RIGHT), "seeds": [1, 2],
        "measures": {"beyond": {"better": "higher", "label": "right beyond"}},
        "generated": {
            task: {"lengths": list(range(1, longest + 1)), "test_lengths": [*LENGTHS[task]]}
            for task, longest in TASKS.items()
        },
    }  # fmt: skip
    (tmp_path / "plan.yaml").write_text(yaml.safe_dump(plan, sort_keys=False))
    for system, by_seed in RIGHT.items():
        for seed, values in by_seed.items():
            folder = tmp_path / "runs" / f"{system}-seed{seed}-0"
            folder.mkdir(parents=True)
            lengths = {
                task: dict(zip(map(str, LENGTHS[task]), found))
                for task, found in zip(TASKS, values)
            }
            result = {"system": system, "seed": seed, "digest": "0", "status": "done"}
            result.update(lengths=lengths, scores={"beyond": 1.0})
            (folder / "result.json").write_text(json.dumps(result))
    return tmp_path


def test_the_map_has_the_breaking_length_of_every_task_and_system(study, monkeypatch):
    drawn = {}
    monkeypatch.setattr(
        "fairseq_posenc.study.report.lengths.heat_map",
        lambda name, caption, rows, columns, values, texts, apart: drawn.update(
            {name: (rows, columns, values.tolist(), texts)}
        ),
    )
    lengths_section(load_results(study))
    rows, columns, values, texts = drawn["breaking"]
    assert (rows, columns) == (["copy", "sort", "parity", "mean"], ["fire", "rotary", "none"])
    assert values == [[4, 1.5, 0.5], [0, 0.5, 0], [1, 0, 0], [2, 1, 0.25]]  # without the control
    assert texts[:2] == [["≥4", "1.5", "0.5"], ["0", "0.5", "0"]]


def test_the_section_stands_in_the_report(study):
    page, text = (path.read_text(encoding="utf-8") for path in report.write_report(study))
    assert "## Generated tasks" in text and 'id="generated-tasks"' in page
    for name in ("breaking", "lengths-copy", "lengths-sort", "lengths-parity"):
        assert f"(figures/{name}.svg)" in text
    assert "| generated.copy.lengths | `1, 2, 3, 4, 5, 6, 7, 8, 9, 10` |" in text
    # the middle half of 4 and 4 (copy), and 0 and 0 (sort)
    assert "| fire | 2.000" in text
    assert "over 2 tasks (without parity) and all seeds" in text
    header = (study / "report/results.csv").read_text().partition("\n")[0]
    assert header.endswith("copy_length5,copy_length10,copy_length20,copy_length40,"
                           "parity_length2,parity_length4,sort_length4,sort_length8")  # fmt: skip


def test_a_study_of_other_recipes_has_no_such_section(study):
    path = study / "plan.yaml"
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), "generated": {}}))
    assert lengths_section(load_results(study)).parts == []


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7, 8, 30])
def test_the_interquartile_mean_is_that_of_scipy(size):
    scores = np.random.default_rng(size).normal(size=(5, size))
    found = aggregates.interquartile_mean(scores)
    assert found == pytest.approx([trim_mean(row, 0.25) for row in scores])


def test_the_interval_is_of_samples_within_tasks():
    """Resampled one by one, seed by seed for each task, as rliable's definition says."""
    draw = np.random.default_rng(5)
    scores = draw.random((5, 3)) + [0, 1, 2]
    found = aggregates.aggregate(scores.tolist())
    means = [
        trim_mean(np.stack([draw.choice(scores[:, task], 5) for task in range(3)]), 0.25, axis=None)
        for _ in range(4000)
    ]
    assert found.value == pytest.approx(trim_mean(scores, 0.25, axis=None))
    assert found.interval == pytest.approx(np.percentile(means, (2.5, 97.5)), abs=0.02)
    assert aggregates.aggregate(scores.tolist()) == found
    assert aggregates.aggregate([[1.0, 3.0]]) == aggregates.Aggregate(2.0, None)
    assert not math.isnan(aggregates.aggregate([[0.0], [0.0]]).value)


def test_numbers_of_dark_cells_are_white(monkeypatch):
    kept = []
    monkeypatch.setattr(heat, "to_svg", lambda figure: kept.append(figure) or "")
    heat.heat_map("x", "caption", ["a"], ["b", "c"], np.array([[0.0, 2.0]]), [["0", "2"]])
    axes = kept[0].axes[0]
    assert [(text.get_text(), text.get_color()) for text in axes.texts] == [
        ("0", "white"),
        ("2", "black"),
    ]
