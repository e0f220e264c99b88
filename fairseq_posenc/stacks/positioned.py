"""Position encodings for fairseq's encoder and decoder, as a mixin."""

import copy
from typing import Any, Callable, Dict, Iterator, List, Optional, cast

import torch.nn.functional as F
from fairseq.data import Dictionary
from torch import Tensor, nn

from fairseq_posenc.attention import AttentionKernel
from fairseq_posenc.checkpoints.warm_start import State, adapt_heads, adapt_positions
from fairseq_posenc.encodings import PositionEncoding, Stack
from fairseq_posenc.flags.options import Options
from fairseq_posenc.layers.parameters import apply_norms_and_biases, share_layers
from fairseq_posenc.stacks.assigned import Assigned
from fairseq_posenc.stacks.positions import StackPositions


def kernels_in(module: nn.Module) -> List[AttentionKernel]:
    """The self-attentions in *module*, in order."""
    return [each for each in module.modules() if isinstance(each, AttentionKernel)]


class PositionedStack:
    """Mixin that adds position encodings to fairseq's encoder and decoder.

    :meth:`compose` runs before fairseq's constructor, which builds the layers, and
    :meth:`register_positions` after it.
    """

    #: True if a checkpoint's position state must match; *strict_advice* ends the error message
    strict_positions = False
    strict_advice = ""

    positions: StackPositions
    add_module: Callable[[str, Optional[nn.Module]], None]
    modules: Callable[[], Iterator[nn.Module]]
    layers: Any
    embed_positions: Any
    padding_idx: int

    def compose(self, cfg: Options, stack: Stack, dictionary: Dictionary) -> Options:
        """Build the position encodings of the layers; returns the configuration for fairseq."""
        self.positions = StackPositions(cfg, stack, dictionary)
        cfg = copy.copy(cfg)  # the other stack may have another encoding
        cfg.no_token_positional_embeddings = self.encoding.input is None
        return cfg

    def register_positions(self, cfg: Options) -> None:
        """Register the modules of the encodings, number the layers and apply the norms."""
        for encoding in self.encodings.values():
            for name, module in encoding.modules.items():
                self.add_module(name, module)
        # iterating over a list with LayerDrop would skip layers
        layers = map(kernels_in, self.layers.children())
        self.positions.number([kernels for kernels in layers if kernels])
        apply_norms_and_biases(cast(nn.Module, self), cfg)
        share_layers(self.layers.children(), cfg)

    def kernels(self) -> List[AttentionKernel]:
        """The self-attentions of the stack, in order."""
        return kernels_in(cast(nn.Module, self))

    def added_positions(self, tokens: Tensor, assigned: Optional[Assigned]) -> Tensor:
        """The vectors (1|B, S, E) that are added to the embeddings of all *tokens* (B, S)."""
        if assigned is None:
            return self.embed_positions(tokens)
        # the tables take tokens, not positions: a text without padding yields rows 0, 1, …
        text = tokens.new_full((1, assigned.bound), self.padding_idx + 1)
        rows = self.embed_positions(text)[0]  # (bound, E)
        return F.embedding(assigned.rows, rows)

    @property
    def encodings(self) -> Dict[str, PositionEncoding]:
        """The compositions of the layers, by name."""
        return self.positions.encodings

    @property
    def encoding(self) -> PositionEncoding:
        """The composition of the first layer, the only one unless there is a pattern."""
        return next(iter(self.positions.encodings.values()))

    def upgrade_state_dict_named(self, state_dict: State, name: str) -> State:
        """Adapt an older or differently encoded checkpoint, logging changes of position state."""
        super().upgrade_state_dict_named(state_dict, name)  # type: ignore[misc]  # fairseq's
        adapt_positions(self, state_dict, name)
        adapt_heads(self, state_dict, name)
        return state_dict
