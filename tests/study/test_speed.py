"""The speed of a study's systems: measured in rounds, compared within them."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

from fairseq_posenc.study.report.measured import speed_section
from fairseq_posenc.study.results import Study


def test_speed_is_compared_within_a_round():
    """A machine twice as slow in the second round changes no ratio; a failed run costs a round."""

    def made(**rates):
        return {
            name: SimpleNamespace(
                scores={"tokens_per_second": rate},
                peak_memory_mb=500,
                environment={"device": "CPU"},
            )
            for name, rate in rates.items()
        }

    rounds = [made(stock=100, rotary=110), made(stock=50, rotary=55, t5=40), made(stock=100, t5=90)]
    study = Study(Path(), {"speed": {"updates": 30}}, ("stock", "rotary", "t5"), (1,), (), {})
    (table,) = speed_section(replace(study, speed=[*rounds, {}])).parts
    assert table.rows == [
        ["stock", "100", "1.00", "500"],
        ["rotary", "82", "1.10", "500"],
        ["t5", "65", "0.85 (0.80 to 0.90)", "500"],
    ]
    assert "in 3 rounds" in table.caption
    assert "Slurm" not in table.caption and "nothing else" not in table.caption
    assert not speed_section(replace(study, speed=[{}])).parts
