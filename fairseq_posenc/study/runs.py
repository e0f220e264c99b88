"""The runs of a plan, each identified by a digest of everything that decides its result."""

from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Tuple

from fairseq_posenc.steps.markers import digest_of, digest_of_value, read_object
from fairseq_posenc.study.flags import Flags, merge, words_of
from fairseq_posenc.study.plan import Plan, plan_of
from fairseq_posenc.study.recipes import RECIPES
from fairseq_posenc.study.recipes.base import Step, passes_of, speed_step
from fairseq_posenc.study.results import DONE, RESULT
from fairseq_posenc.version import __version__

SPEED_ROUNDS = 3


class Spec(NamedTuple):
    """A run to make."""

    system: str  # name of the system
    seed: int  # seed of the training
    flags: Flags  # flags of the system beyond the base
    base: Tuple[str, ...]  # words of the base
    steps: Tuple[Step, ...]  # the steps in order
    keys: Tuple[str, ...]  # a digest for each step, of the step and of all before it
    gpus: int  # number of GPUs that the batch is meant for
    update_freq: int  # passes that gather a batch on that many GPUs

    @property
    def digest(self) -> str:
        """Digest of everything that decides the result, hexadecimal."""
        return self.keys[-1]

    @property
    def name(self) -> str:
        """Name of its folder."""
        return f"{self.system}-seed{self.seed}-{self.digest[:8]}"


def spec_of(plan: Plan, system: str, seed: int, chosen: Mapping[str, str]) -> Spec:
    """The run of a system with a seed.

    Args:
        chosen: flags that the search has chosen for the system.
    """
    plan = plan_of(plan, system)
    own = {**plan.systems[system], **chosen}
    flags = merge(plan.base, own)
    steps = tuple(RECIPES[plan.recipe].steps(plan, flags, seed))
    keys = tuple(_chain(plan, steps))
    base, passes = tuple(words_of(plan.base)), passes_of(flags)
    return Spec(system, seed, own, base, steps, keys, plan.gpus, passes)


def _chain(plan: Plan, steps: Tuple[Step, ...]) -> Iterator[str]:
    key = digest_of_value([__version__, plan.gpus, plan.user_dir and digest_of(plan.user_dir)])
    for step in steps:
        # the content of folders and files decides, not their place
        places = {plan.data["folder"], *step.depends}
        if plan.finetune:
            places |= {str(Path(plan.finetune["data"], task)) for task in plan.finetune["tasks"]}
        used = [place for place in step.words if place in places]
        words = [digest_of(word) if word in places else word for word in step.words]
        read = [digest_of(place) for place in step.depends if place not in used]
        key = digest_of_value([key, step.name, words, read, *step.settings])
        yield key


def read_result(folder: Path, spec: Spec) -> Optional[Dict[str, Any]]:
    """The result of a run, if the run has ended."""
    found = read_object(folder / RESULT)
    return found if found.get("digest") == spec.digest else None


def finished_result(folder: Path, spec: Spec) -> Optional[Dict[str, Any]]:
    """The result of a run that succeeded, or None."""
    found = read_result(folder, spec)
    return found if found is not None and found["status"] == DONE else None


Chosen = Dict[str, Dict[str, str]]
#: The losses of a search, one for each seed, by system and by flag and value.
Tried = Dict[str, Dict[str, List[float]]]


def trials(plan: Plan) -> Dict[str, List[Tuple[Dict[str, str], List[Spec]]]]:
    """The runs of the search by system: each value to try, and the runs that try the value."""
    found: Dict[str, List[Tuple[Dict[str, str], List[Spec]]]] = {}
    seeds = plan.seeds[: plan.search_seeds]
    for flag, values in plan.search.items():
        for system in plan.systems:
            tried = [{flag: value} for value in values]
            found[system] = [
                (one, [spec_of(plan, system, seed, one) for seed in seeds]) for one in tried
            ]
    return found


def specs(plan: Plan, chosen: Chosen) -> List[Spec]:
    """All runs: seed by seed, so that an unfinished study has something of every system.

    Args:
        chosen: flags that the search has chosen, by system.
    """
    return [
        spec_of(plan, system, seed, chosen.get(system, {}))
        for seed in plan.seeds
        for system in plan.systems
    ]


def speed_specs(plan: Plan, chosen: Chosen) -> List[Spec]:
    """Rounds of all systems that measure their speed, if the plan asks for the speed.

    A machine is not equally fast all the time; the systems of a round are measured close together.

    Args:
        chosen: flags that the search has chosen, by system.
    """
    if not plan.speed:
        return []
    once = []
    for system in plan.systems:
        spec = spec_of(plan, system, plan.seeds[0], chosen.get(system, {}))
        step = speed_step(spec.steps[0], plan.speed["updates"])
        once.append(
            spec._replace(steps=(step,), keys=(digest_of_value([spec.keys[0], step.words]),))
        )
    return [
        spec._replace(keys=(digest_of_value([*spec.keys, number]),)) if number else spec
        for number in range(SPEED_ROUNDS)
        for spec in once
    ]
