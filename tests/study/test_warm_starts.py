"""What the report says of runs that start from a trained model."""

import csv
import io

from support.made_up_studies import make

from fairseq_posenc.study.report import build, to_markdown
from fairseq_posenc.study.report.warm_starts import Start, starts_of, warm_start_section
from fairseq_posenc.study.results import load_results, to_csv

pytest_plugins = ["support.made_up_studies"]


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
