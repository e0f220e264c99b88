"""The speed of a study's systems: measured in rounds, compared within them."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

from support.fake_fairseq import FakeCommands
from support.studies import CPU

from fairseq_posenc.study.report.measured import speed_section
from fairseq_posenc.study.results import Study, load_results
from fairseq_posenc.study.study import Pool, carry_out
from fairseq_posenc.study.work import Worker

pytest_plugins = ["support.studies"]


def test_the_speed_is_measured_in_rounds_of_all_systems(read, tmp_path):
    plan, fake, alone = read(speed={"updates": 50}), FakeCommands(), FakeCommands()
    pools = [Pool(Worker(tmp_path, made, str), [CPU], str) for made in (fake, alone)]
    results = carry_out(plan, tmp_path, pools[0], str, pools[1])
    assert len(results) == len(load_results(tmp_path).runs) == 4
    assert [step for _, step in alone.ran] == 6 * ["speed"]
    ran = [folder.split("-seed")[0] for folder, _ in alone.ran]
    assert ran[:2] == ran[2:4] == ran[4:] and set(ran) == {"rotary", "stock"}
    rounds = load_results(tmp_path).speed
    assert [set(made) for made in rounds] == 3 * [set(ran)]
    assert len({made["stock"].folder for made in rounds}) == 3
    assert rounds[0]["stock"].scores == {"tokens_per_second": (500 + 333) / 2}
    assert rounds[0]["stock"].peak_memory_mb == round(9.5 * 1024)
    carry_out(plan, tmp_path, pools[0], str, pools[1])
    assert len(alone.ran) == 6


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
