"""A masked language model with its heads: of tokens, of classes, and those of pre-training.

BERT, Devlin et al., arXiv 1810.04805; RoBERTa, Liu et al., arXiv 1907.11692.
"""

import logging
from typing import Any, Dict, Mapping, Optional, Tuple

from fairseq.models.roberta.model import RobertaModel
from torch import Tensor, nn

from fairseq_posenc.checkpoints.warm_start import State, leave_out_pretraining
from fairseq_posenc.flags.options import Options
from fairseq_posenc.layers.heads import NormedHead, mean_of, refuse_tokens
from fairseq_posenc.layers.norms import apply_norms
from fairseq_posenc.layers.state_heads import HEADS, StateHead

logger = logging.getLogger(__name__)


class HeadedModel(RobertaModel):
    """RoBERTa with segments, token classifiers and heads of pre-training.

    Args:
        args: complete flat configuration.
        encoder: the encoder with its language-model head.
    """

    def __init__(self, args: Options, encoder: nn.Module) -> None:
        super().__init__(args, encoder)
        self.token_heads = nn.ModuleDict()
        self.state_heads: Dict[str, StateHead] = {}  # those that the task adds; they have modules

    def add_head(self, name: str) -> None:
        """Add a head that is registered under *name*."""
        head = HEADS.find(name).thing()
        head.add(self)
        self.state_heads[name] = head

    def register_classification_head(
        self, name: str, num_classes: Any = None, inner_dim: Optional[int] = None, **kwargs: Any
    ) -> None:
        """Add a classifier of texts; see fairseq's RoBERTa for the arguments."""
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
        """A head with a norm, of the kind that ``--norm`` selects."""
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
        """Adapt token heads, leave out those of pre-training, and do what fairseq does."""
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
                logger.warning("left out %s, which is of another size", key)
                del state_dict[key]
        for key, value in self.token_heads.state_dict().items():
            state_dict.setdefault(prefix + key, value)  # a new head, to be trained

    def forward(
        self,
        src_tokens: Tensor,
        segment_labels: Optional[Tensor] = None,
        features_only: bool = False,
        return_all_hiddens: bool = False,
        classification_head_name: Optional[str] = None,
        **inputs: Any,
    ) -> Tuple[Tensor, Any]:
        """Logits of the tokens, or of a classification or token head.

        Args:
            src_tokens: (B, T), starting with [CLS].
            segment_labels: (B, T) segment of each token; default: by ``--segments``.
            features_only: stop before the language-model head.
            return_all_hiddens: also return the states between layers.
            classification_head_name: apply this head instead.
            inputs: see :meth:`MaskedLMEncoder.forward`, and :meth:`predict` for logits of tokens.

        Returns:
            logits (B, T, V), or (N, V) for N *masked_tokens*, features (B, T, C), classes (B, N) of
            a classification head or (B, T, N) of a token head; and a dictionary with
            ``inner_states``, and the outputs of the ``heads`` that were asked for.
        """
        inputs.update(segment_labels=segment_labels, return_all_hiddens=return_all_hiddens)
        name = classification_head_name
        if name is not None:
            by_mean = self.args.pooler == "mean" and name not in self.token_heads
            by_token = by_mean or name in self.token_heads
            x, extra = self.encoder(src_tokens, True, by_token=by_token, **inputs)
            if by_mean:
                x = mean_of(x, src_tokens.ne(self.encoder.dictionary.pad()))
            return self.head(name)(x), extra
        if features_only:
            return self.encoder(src_tokens, True, **inputs)
        return self.predict(src_tokens, **inputs)

    def predict(
        self,
        src_tokens: Tensor,
        masked_tokens: Optional[Tensor] = None,
        heads: Optional[Mapping[str, Mapping[str, Any]]] = None,
        **inputs: Any,
    ) -> Tuple[Tensor, Any]:
        """Logits of the tokens, and the outputs of *heads*.

        Args:
            src_tokens: (B, T), starting with [CLS].
            masked_tokens: (B, T), True where logits are needed; default everywhere.
            heads: by the name of a head that :meth:`add_head` has added, what it reads beside the
                states.
            inputs: see :meth:`MaskedLMEncoder.forward`.
        """
        if not heads:
            return self.encoder(src_tokens, masked_tokens=masked_tokens, **inputs)
        if any(self.state_heads[name].reads_all for name in heads):
            inputs["return_all_hiddens"] = True
        x, extra = self.encoder(src_tokens, True, predicting=True, **inputs)
        states = [state.transpose(0, 1) for state in extra["inner_states"] or ()]  # (B, T, C)
        states[-1:] = [x]
        for name, more in heads.items():
            extra[name] = self.state_heads[name].read(self, states, **more)
        return self.encoder.output_layer(x, masked_tokens=masked_tokens), extra
