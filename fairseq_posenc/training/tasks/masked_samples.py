"""Samples with masks: dynamic, drawn anew in every epoch, or static (RoBERTa section 4.1)."""

from typing import Any, Collection, Dict, List, Tuple, Union

import numpy as np
import torch
from fairseq.data import FairseqDataset, MaskTokensDataset, data_utils
from torch import Tensor

from fairseq_posenc.training.tasks.masking import UnitMasks


class TokenMasks:
    """Masks single tokens, by fairseq's ``MaskTokensDataset``.

    Args:
        samples: one-dimensional.
        masking: arguments of ``MaskTokensDataset``.
    """

    def __init__(self, samples: FairseqDataset, masking: Dict[str, Any]) -> None:
        # not by apply_mask, whose caches return samples of the epoch before
        self.source = MaskTokensDataset(samples, **masking, return_masked_tokens=False)
        self.target = MaskTokensDataset(samples, **masking, return_masked_tokens=True)

    def set_epoch(self, epoch: int) -> None:
        """Choose the masks of an epoch."""
        self.source.set_epoch(epoch)
        self.target.set_epoch(epoch)

    def __getitem__(self, index: int) -> Tuple[Tensor, Tensor]:
        """The masked sample (T,), and the tokens to predict (T,), padding elsewhere."""
        return self.source[index], self.target[index]


class MaskedSamples(FairseqDataset):
    """Samples of running text or pairs, with masks.

    Masks depend on the seed, the epoch and the number of the sample alone.

    Args:
        samples: one-dimensional; with ``relations`` (N,) if they are pairs.
        masks: the masks of these samples.
        padding: the token that fills up batches.
        seed: the seed of the order of samples.
        static: number of different masks of a sample, which epochs take in turn; 0 for a new one in
            each.
        shards: epochs in which fairseq reads the data once.
    """

    def __init__(
        self,
        samples: FairseqDataset,
        masks: Union[TokenMasks, UnitMasks],
        padding: int,
        seed: int,
        static: int,
        shards: int,
    ) -> None:
        super().__init__()
        self.samples, self.masks, self.static, self.shards = samples, masks, static, shards
        self.padding, self.seed = padding, seed

    @property
    def can_reuse_epoch_itr_across_epochs(self) -> bool:
        """False, so that processes that load data learn of the epoch, with which masks change."""
        return False

    def set_epoch(self, epoch: int, **unused: object) -> None:
        """Choose the masks of an epoch, and with pairs the texts."""
        if self.static:
            epoch = (epoch - 1) // self.shards % self.static + 1
        self.masks.set_epoch(epoch)

    def __getitem__(self, index: int) -> Dict[str, Any]:
        source, target = self.masks[index]
        sample = {"id": index, "source": source, "target": target}
        if hasattr(self.samples, "relations"):
            sample["relation"] = int(self.samples.relations[index])
        return sample

    def __len__(self) -> int:
        return len(self.samples)

    def collater(self, samples: List[Dict[str, Any]]) -> Dict[str, Any]:
        """A batch as of fairseq's ``masked_lm``, with ``relation`` (B,) if there are pairs."""
        if not samples:
            return {}
        lengths = torch.tensor([len(sample["source"]) for sample in samples])
        tokens, target = (
            data_utils.collate_tokens([sample[key] for sample in samples], self.padding)
            for key in ("source", "target")
        )
        batch = {
            "id": torch.tensor([sample["id"] for sample in samples]),
            "net_input": {"src_tokens": tokens, "src_lengths": lengths},
            "target": target,
            "nsentences": len(samples),
            "ntokens": int(lengths.sum()),
        }
        if "relation" in samples[0]:
            batch["relation"] = torch.tensor([sample["relation"] for sample in samples])
        return batch

    @property
    def sizes(self) -> np.ndarray:
        """Tokens of each sample (N,)."""
        sizes: np.ndarray = self.samples.sizes
        return sizes

    def num_tokens(self, index: int) -> int:
        """Tokens of a sample."""
        return int(self.sizes[index])

    def num_tokens_vec(self, indices: np.ndarray) -> np.ndarray:
        """Tokens of samples."""
        return self.sizes[indices]

    def size(self, index: int) -> int:
        """Tokens of a sample."""
        return self.num_tokens(index)

    def ordered_indices(self) -> np.ndarray:
        """Samples by length, those of equal length at random by the seed."""
        with data_utils.numpy_seed(self.seed):
            shuffled = np.random.permutation(len(self))
        return np.lexsort([shuffled, self.sizes])

    @property
    def supports_prefetch(self) -> bool:
        """Whether the samples have to be fetched in advance."""
        return getattr(self.samples, "supports_prefetch", False)

    def prefetch(self, indices: Collection[int]) -> None:
        """Fetch samples."""
        self.samples.prefetch(indices)
