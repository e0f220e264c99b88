"""Language modelling over a text in order, with the states of earlier segments as memory.

Transformer-XL, Dai et al., arXiv 1901.02860.  The text is cut into streams, one for each row of the
batches of all workers.  Every batch reads the next ``--tokens-per-sample`` tokens of its streams.
With ``--memory-length``, the model also attends to the states of earlier segments.  Each epoch and
each validation starts with an empty memory.
"""

import os
from typing import Any, Dict, Optional, Tuple

from fairseq import utils
from fairseq.data import FairseqDataset, data_utils
from fairseq.tasks import register_task
from fairseq.tasks.language_modeling import LanguageModelingConfig, LanguageModelingTask
from torch import Tensor, nn

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.flags.options import Options, option
from fairseq_posenc.flags.settings import refuse_unless_off
from fairseq_posenc.models.language_model import LanguageModelDecoder
from fairseq_posenc.packs.long_sequences.memory import TASK, MemoryDecoder
from fairseq_posenc.packs.long_sequences.streams import Carried, Corpus, StreamIterator, Streams
from fairseq_posenc.training.masked_lm import Recorded

#: fairseq's flags that cut or change blocks, with the values that leave blocks unchanged.
_UNCUT = {
    "sample_break_mode": "none",
    "add_bos_token": False,
    "shorten_method": "none",
    "pad_to_fixed_length": False,
    "pad_to_fixed_bsz": False,
    "self_target": False,
    "past_target": False,
    "output_dictionary_size": -1,
}
#: Arguments of get_batch_iterator that are passed on to the iterator.
_OF_ITERATORS = ("seed", "num_shards", "shard_id", "num_workers", "epoch", "skip_remainder_batch")

Stepped = Tuple[Tensor, Any, Dict[str, Any]]


@register_task(TASK, dataclass=LanguageModelingConfig)
class LanguageModelingWithMemoryTask(LanguageModelingTask):
    """Like ``language_modeling``, but on the segments of a text in order.

    ``fairseq-validate`` reports the perplexity with memory.  Prompts are continued as with
    ``language_modeling``.
    """

    def __init__(self, args: Options, *dictionaries: Any, **kwargs: Any) -> None:
        super().__init__(args, *dictionaries, **kwargs)
        self.carried = {"training": Carried(), "validation": Carried()}

    @classmethod
    def setup_task(cls, args: Options, **kwargs: Any) -> "LanguageModelingWithMemoryTask":
        """Build the task.

        Raises:
            UsageError: a flag would cut the text differently, or change its tokens.
        """
        refuse_unless_off(
            args,
            _UNCUT,
            f"--task {TASK} reads the text as it is, in segments of --tokens-per-sample tokens",
        )
        return super().setup_task(args, **kwargs)

    def build_model(self, args: Options, from_checkpoint: bool = False) -> nn.Module:
        """Build the model.

        Raises:
            UsageError: the architecture cannot have a memory.
        """
        model = super().build_model(args, from_checkpoint)
        if not isinstance(getattr(model, "decoder", None), LanguageModelDecoder):
            raise UsageError(
                f"--arch {option(args, '_name') or option(args, 'arch')}: has no memory, which "
                f"--task {TASK} needs; give for example --arch transformer_xl_lm_small"
            )
        return model

    def load_dataset(
        self, split: str, epoch: int = 1, combine: bool = False, **kwargs: object
    ) -> None:
        """Load the text of a split.

        Raises:
            FileNotFoundError: the split does not exist.
        """
        paths = utils.split_paths(self.args.data)
        path = os.path.join(paths[(epoch - 1) % len(paths)], split)
        lines = data_utils.load_indexed_dataset(
            path, self.dictionary, self.args.dataset_impl, combine=combine
        )
        if lines is None:
            raise FileNotFoundError(f"Dataset not found: {split} ({path})")
        words = self.dictionary
        self.datasets[split] = Corpus(lines, words.eos(), words.pad(), self.args.tokens_per_sample)

    def get_batch_iterator(
        self,
        dataset: FairseqDataset,
        max_tokens: Optional[int] = None,
        max_sentences: Optional[int] = None,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        """An iterator over the segments of a text in order; other data sets get fairseq's iterator.

        Raises:
            UsageError: a batch would hold less than one segment.
        """
        if not isinstance(dataset, Corpus):
            return super().get_batch_iterator(dataset, max_tokens, max_sentences, *args, **kwargs)
        rows = max_sentences or 2**31
        if max_tokens:
            rows = min(rows, max_tokens // dataset.segment_length)
        if rows == 0:
            raise UsageError(
                f"--max-tokens {max_tokens}: a batch holds less than a segment of "
                f"--tokens-per-sample {dataset.segment_length}; give a multiple of that"
            )
        streams = Streams(dataset, rows * kwargs.get("num_shards", 1))
        return StreamIterator(
            self.carried["training"],
            streams.count,
            dataset=streams,
            collate_fn=streams.collater,
            batch_sampler=streams.batches(rows),
            buffer_size=kwargs.get("data_buffer_size", 0),
            **{name: kwargs[name] for name in _OF_ITERATORS if name in kwargs},
        )

    def train_step(
        self,
        sample: Dict[str, Any],
        model: nn.Module,
        criterion: nn.Module,
        optimizer: Any,
        update_num: int,
        ignore_grad: bool = False,
        **kwargs: Any,
    ) -> Stepped:
        """Run fairseq's training step with the memory of the previous batch."""
        if ignore_grad:  # a worker that has no batch left repeats its first batch
            with_memory: Any = Recorded(model, memory=[])
            rest = (criterion, optimizer, update_num, True)
            return super().train_step(sample, with_memory, *rest, **kwargs)
        carried, segment = self.carried["training"], sample["segment"]
        with_memory = Recorded(model, memory=carried.before(segment))
        out = super().train_step(sample, with_memory, criterion, optimizer, update_num, **kwargs)
        carried.after(segment, with_memory.output[1]["memory"])
        return out

    def optimizer_step(self, optimizer: Any, model: nn.Module, update_num: int) -> None:
        """Run fairseq's step, after which earlier batches are not repeated."""
        super().optimizer_step(optimizer, model, update_num)
        self.carried["training"].updated()

    def valid_step(
        self, sample: Dict[str, Any], model: nn.Module, criterion: nn.Module, **kwargs: Any
    ) -> Stepped:
        """Run fairseq's validation step with the memory of the previous batch."""
        if not isinstance(model.decoder, MemoryDecoder):  # evaluated with --memory-length 0
            return super().valid_step(sample, model, criterion, **kwargs)
        carried, segment = self.carried["validation"], sample["segment"]
        with_memory: Any = Recorded(model, memory=carried.before(segment))
        out = super().valid_step(sample, with_memory, criterion, **kwargs)
        carried.after(segment, with_memory.output[1]["memory"])
        carried.updated()
        return out

    def eval_lm_dataloader(self, *args: object, **kwargs: object) -> None:
        """Refuse ``fairseq-eval-lm``, which scores each batch without a memory."""
        raise UsageError(
            f"fairseq-eval-lm: scores every batch on its own, without the memory of --task {TASK}; "
            "use fairseq-validate, which reports the perplexity with memory, or --task "
            "language_modeling"
        )
