"""Noticing texts that were split into another kind of subwords than the dictionary's."""

from collections import Counter
from typing import Callable, Iterable, Sequence

from fairseq_posenc.basics.errors import UsageError


def check_known(
    texts: Iterable[Sequence[str]], known: Callable[[str], bool], where: str, advice: str
) -> None:
    """Refuse texts most of whose tokens are unknown.

    Args:
        texts: the tokens of each.
        known: whether the dictionary has a token.
        where: the texts, at the start of the message.
        advice: what to do about it.

    Raises:
        UsageError: the dictionary does not have more than half of the tokens.
    """
    counts = Counter(token for tokens in texts for token in tokens)
    unknown = Counter({token: n for token, n in counts.items() if not known(token)})
    share = sum(unknown.values()) / max(1, sum(counts.values()))
    if share > 0.5:
        examples = ", ".join(token for token, _ in unknown.most_common(3))
        raise UsageError(
            f"{where}: {share:.0%} of the tokens are not in the dictionary ({examples}); {advice}"
        )
