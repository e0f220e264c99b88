"""Counts the tokens that are decoded with a cache; the layers still compute the steps."""

from dataclasses import dataclass
from typing import Any, Dict, Optional

from fairseq_posenc.configuration.features import register_feature
from fairseq_posenc.flags.options import option
from fairseq_posenc.flags.settings import setting
from fairseq_posenc.stacks.decoder import STEPS, Steps


@dataclass
class CountFlags:
    """The flag that counts decoded tokens."""

    count_steps: Optional[bool] = setting(False, "count tokens decoded with a cache", role="free")


class CountedSteps(Steps):
    """Counts the tokens that are decoded with a cache."""

    count = 0

    def cached_length(self, state: Dict[str, Any]) -> None:
        """Return None, because the layers hold the cache."""

    def step(self, decoder: Any, tokens: Any, seen: int, *others: Any) -> None:
        """Count the *tokens* (B, S) after the first *seen*; the layers compute the step."""
        self.count += tokens[:, seen:].numel()


register_feature(CountFlags, models=["posenc_transformer", "posenc_lm"])
STEPS.append(lambda cfg, decoder: CountedSteps() if option(cfg, "count_steps", None) else None)
