"""The heads of a masked language model: text classifiers, token classifiers, pre-training heads.

BERT, Devlin et al., arXiv 1810.04805; RoBERTa, Liu et al., arXiv 1907.11692.
"""

import logging
from typing import Any, Dict, Optional

from fairseq.models.roberta.model import RobertaModel
from torch import nn

from fairseq_posenc.checkpoints.warm_start import State, leave_out_pretraining
from fairseq_posenc.flags.options import Options
from fairseq_posenc.layers.heads import HEADS, NormedHead, StateHead, refuse_tokens
from fairseq_posenc.layers.norms import apply_norms

logger = logging.getLogger(__name__)


class HeadedModel(RobertaModel):
    """RoBERTa with token classifiers and pre-training heads."""

    def __init__(self, args: Options, encoder: nn.Module) -> None:
        super().__init__(args, encoder)
        self.token_heads = nn.ModuleDict()
        self.state_heads: Dict[str, StateHead] = {}  # heads that the task adds, keyed by name

    def add_head(self, name: str) -> None:
        """Add the head that is registered under *name*."""
        head = HEADS.find(name).thing()
        head.add(self)
        self.state_heads[name] = head

    def register_classification_head(
        self, name: str, num_classes: Any = None, inner_dim: Optional[int] = None, **kwargs: Any
    ) -> None:
        """Add a text classifier; see fairseq's RoBERTa for the arguments."""
        super().register_classification_head(name, num_classes, inner_dim, **kwargs)
        if self.args.pooler_norm:
            self.classification_heads[name] = self._normed_head(num_classes, False, inner_dim)
        if self.args.pooler == "mean":
            self.classification_heads[name].register_forward_pre_hook(refuse_tokens)

    def register_token_head(self, name: str, num_classes: int) -> None:
        """Add a token classifier: a projection, or with ``--pooler-norm`` a ``NormedHead``."""
        if self.args.pooler_norm:
            self.token_heads[name] = self._normed_head(num_classes, True)
        else:
            self.token_heads[name] = nn.Linear(self.args.encoder_embed_dim, num_classes)

    def _normed_head(
        self, classes: int, by_token: bool, inner_dim: Optional[int] = None
    ) -> NormedHead:
        head = NormedHead(
            by_token,
            input_dim=self.args.encoder_embed_dim,
            inner_dim=inner_dim or self.args.encoder_embed_dim,
            num_classes=classes,
            activation_fn=self.args.pooler_activation_fn,
            pooler_dropout=self.args.pooler_dropout,
            q_noise=self.args.quant_noise_pq,
            qn_block_size=self.args.quant_noise_pq_block_size,
            do_spectral_norm=self.args.spectral_norm_classification_head,
        )
        apply_norms(head, self.args)
        return head

    def head(self, name: str) -> Any:
        """The classification or token head of this name."""
        return (self.token_heads if name in self.token_heads else self.classification_heads)[name]

    def upgrade_state_dict_named(self, state_dict: State, name: str) -> None:
        """Adapt a checkpoint: drop unused heads, call fairseq's method, and adapt token heads."""
        leave_out_pretraining(state_dict, name, self)
        super().upgrade_state_dict_named(state_dict, name)
        prefix = f"{name}." if name else ""
        added = tuple(f"{head.module}." for head in self.state_heads.values())
        for key, value in self.state_dict().items() if added else ():
            if key.startswith(added):
                state_dict.setdefault(prefix + key, value)  # a new head, to be trained
        self._adapt_token_heads(state_dict, f"{prefix}token_heads.")

    def _adapt_token_heads(self, state_dict: State, prefix: str) -> None:
        last = "out_proj.weight" if self.args.pooler_norm else "weight"
        for key in [key for key in state_dict if key.startswith(prefix)]:
            head = key[len(prefix) :].split(".")[0]
            classes = len(state_dict.get(f"{prefix}{head}.{last}", ()))
            if head not in self.token_heads and self.args.load_checkpoint_heads:
                self.register_token_head(head, classes)
            if head not in self.token_heads:
                logger.warning("left out %s; --load-checkpoint-heads would keep it", key)
                del state_dict[key]
            elif classes != self.token_heads[head].out_features:
                logger.warning("left out %s, whose size differs", key)
                del state_dict[key]
        for key, value in self.token_heads.state_dict().items():
            state_dict.setdefault(prefix + key, value)  # a new head, to be trained
