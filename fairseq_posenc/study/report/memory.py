"""What was computed for an earlier report of the same study, and is not computed again."""

import hashlib
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence

from fairseq_posenc.study.markers import read_object, write_object


class Memory:
    """Results of long computations by the content of all that goes into them.

    Args:
        path: a JSON file, or None to keep nothing. A damaged one is computed anew.
    """

    def __init__(self, path: Optional[Path] = None) -> None:
        self.path = path
        self.known: Dict[str, Any] = read_object(path) if path else {}

    def get(self, inputs: Iterable[Any], compute: Callable[[], Any]) -> Any:
        """The result of *compute*, from the file if it is there.

        Args:
            inputs: all that the result depends on; each is written in full by ``repr``.
            compute: gives a value that JSON has.
        """
        return self.get_all([inputs], lambda _: [compute()])[0]

    def get_all(
        self, inputs: Sequence[Iterable[Any]], compute: Callable[[List[int]], Sequence[Any]]
    ) -> List[Any]:
        """Several results, of which those that are unknown are computed together.

        Args:
            inputs: for each result, all that it depends on.
            compute: from the indices of the unknown ones to their results.
        """
        keys = [_digest(given) for given in inputs]
        unknown = [index for index, key in enumerate(keys) if key not in self.known]
        if unknown:
            self.known.update(zip([keys[i] for i in unknown], compute(unknown)))
        return [self.known[key] for key in keys]

    def save(self) -> None:
        """Write the file."""
        if self.path is not None:
            write_object(self.path, self.known)


def _digest(inputs: Iterable[Any]) -> str:
    digest = hashlib.sha256()
    for given in inputs:
        digest.update(repr(given).encode("utf-8", "surrogatepass") + b"\0")
    return digest.hexdigest()
