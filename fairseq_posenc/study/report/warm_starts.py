"""What another position encoding costs a trained model, and when the loss is won back."""

from typing import List, NamedTuple, Optional, Sequence

from fairseq_posenc.study.logs import won_back
from fairseq_posenc.study.report.document import Section, Table, number, spread
from fairseq_posenc.study.results import Study
from fairseq_posenc.study.statistics import summarise

TITLE = "From a trained model"


class Start(NamedTuple):
    """What a run lost and won back that began with a trained model."""

    lost: float  # bits that the change costs at update 0
    back: Optional[int]  # first validated update with the trained model's loss or less, or None
    gained: float  # bits by which the last validation is better than the trained model


def starts_of(study: Study, system: str) -> List[Start]:
    """What each run of a system lost at update 0, and won back.

    The trained model is what the baseline is at update 0, with the same seed.
    """
    found = []
    for run in study.of(system):
        original, losses = study.run(study.baseline, run.seed), run.losses
        trained = original.losses.get(0) if original else None
        if trained is None or not losses:
            continue
        last = losses[max(losses)]
        found.append(Start(losses[0] - trained, won_back(losses, trained), trained - last))
    return found


def warm_start_section(study: Study) -> Section:
    """A table of what each system lost and won back; empty unless runs validated at update 0."""
    starts = {name: starts_of(study, name) for name in study.finished}
    starts = {name: found for name, found in starts.items() if found}
    if not starts:
        return Section(TITLE, [])
    rows = [[name, *_row(study, name, found)] for name, found in starts.items()]
    base = [run.losses[0] for run in study.of(study.baseline) if run.losses]
    caption = (
        f"{study.baseline} begins as the trained model, whose validation loss is "
        f"{spread(summarise(base))}. Lost: how much worse a system is at update 0, before any "
        "training. Won back: the first validated update at which its loss is that of the trained "
        "model or lower, for each seed, and – where it stays higher. Gained: how much lower its "
        "last loss is than the trained model's. Losses are in bits per token, with mean ± standard "
        "deviation over the seeds."
    )
    header = ["system", "lost", "won back at", "gained", "trained parameters", "s for 100 updates"]
    return Section(TITLE, [Table(caption, header, rows)])


def _row(study: Study, system: str, starts: Sequence[Start]) -> List[str]:
    runs = study.of(system)
    trained = max(run.trained for run in runs)
    share = f"{trained:,} ({100 * trained / runs[0].parameters:.1f} %)" if trained else "–"
    seconds = [100 * run.seconds["train"] / run.updates for run in runs if run.updates]
    lost, gained = (
        summarise([one.lost for one in starts]),
        summarise([one.gained for one in starts]),
    )
    return [
        spread(lost),
        ", ".join("–" if start.back is None else str(start.back) for start in starts),
        spread(gained),
        share,
        number(summarise(seconds).mean) if seconds else "–",
    ]
