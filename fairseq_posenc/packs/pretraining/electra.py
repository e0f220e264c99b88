"""Replaced-token detection: a generator and a discriminator, pre-trained in one model.

ELECTRA, Clark et al. 2020, arXiv 2003.10555.  Pre-train with ``--task masked_lm --criterion
replaced_token_detection``; fine-tune the discriminator with ``--arch posenc_masked_lm
--restore-file CHECKPOINT``.
"""

import copy
import dataclasses
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Dict, List, Mapping, Optional, Tuple

import torch
import torch.nn.functional as F
from fairseq.criterions import register_criterion
from fairseq.dataclass import FairseqDataclass
from fairseq.models import BaseFairseqModel
from fairseq.tasks import FairseqTask
from fairseq.utils import get_activation_fn
from torch import Tensor, nn

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.configuration.features import Completed, register_feature
from fairseq_posenc.flags.options import Options
from fairseq_posenc.flags.settings import check_settings, setting
from fairseq_posenc.layers.heads import PRETRAINING
from fairseq_posenc.layers.parameters import initialise
from fairseq_posenc.models.family import Family, Preset
from fairseq_posenc.models.masked_lm import MASKED_LM as FAMILY
from fairseq_posenc.models.masked_lm import MaskedLMModel
from fairseq_posenc.models.presets import MASKED_LM
from fairseq_posenc.models.roberta import MaskedLMEncoder
from fairseq_posenc.training.base import SummingCriterion, Sums

MODEL, CRITERION = "posenc_electra", "replaced_token_detection"
PRETRAINING.update(dict.fromkeys(("generator", "replaced_head"), f"--criterion {CRITERION}"))

# Generator sizes as in Table 6: 1/4 of the discriminator, and 1/3 in the base models.
_THIRD = {"generator_size": 1 / 3}
PRESETS: Dict[str, Preset] = {
    "roformer_electra_tiny": MASKED_LM["roformer_masked_lm_tiny"],
    "roformer_electra_base": {**MASKED_LM["roformer_masked_lm_base"], **_THIRD},
    "roformer_electra_large": MASKED_LM["roformer_masked_lm_large"],
    "electra_base": {**MASKED_LM["bert_a_masked_lm_base"], **_THIRD},
}


@dataclass
class ElectraFlags:
    """Flags of the generator."""

    generator_size: Optional[float] = setting(
        0.25,
        "channels, heads and feed-forward channels of the generator, as a fraction of the "
        "discriminator's; both have the same number of layers",
        above=0,
        at_most=1,
    )


def check_electra(completed: Completed) -> None:
    """Refuse flags that the generator or the discriminator does not support."""
    cfg = completed.cfg
    if cfg.lm_head == "tied":
        raise UsageError(
            "--lm-head tied: the generator of ELECTRA is narrower than the embeddings, which it "
            "shares with the discriminator; drop the flag, or give --arch posenc_masked_lm"
        )
    if cfg.mask_decoder_layers:
        raise UsageError(
            f"--mask-decoder-layers {cfg.mask_decoder_layers}: the discriminator of ELECTRA "
            "predicts no masked tokens; drop it, or give --arch posenc_masked_lm"
        )


register_feature(ElectraFlags, models=[MODEL], check=check_electra)
ELECTRA: Family = Family(
    model=MODEL,
    what="a generator with a discriminator",
    example="roformer_electra_base",
    tasks=("masked_lm",),
    own_fields=FAMILY.own_fields,
    presets=PRESETS,
    stacks=FAMILY.stacks,
    configure=FAMILY.configure,
    criterion=CRITERION,
    like=(FAMILY.model,),
)


def generator_settings(cfg: Options) -> Options:
    """The settings of the generator: the discriminator's, with narrower layers (section 3.2).

    Raises:
        UsageError: the fraction gives no channels, or heads that do not divide the channels.
    """
    small, size = copy.deepcopy(cfg), cfg.generator_size
    small.encoder_attention_heads = max(1, round(cfg.encoder_attention_heads * size))
    small.encoder_embed_dim = round(cfg.encoder_embed_dim * size)
    small.encoder_ffn_embed_dim = max(1, round(cfg.encoder_ffn_embed_dim * size))
    channels, heads = small.encoder_embed_dim, small.encoder_attention_heads
    if small.kv_heads:
        # each key head serves at least as many query heads as in the discriminator
        least = Fraction(cfg.encoder_attention_heads, cfg.kv_heads)
        shares = [n for n in range(1, heads + 1) if heads % n == 0]
        small.kv_heads = heads // min((n for n in shares if n >= least), default=heads)
    if channels < 1 or (small.layer != "gated" and channels % heads):
        raise UsageError(
            f"--generator-size {size}: gives {heads} heads and {channels} channels (of "
            f"--encoder-embed-dim {cfg.encoder_embed_dim}), but heads must divide channels; give "
            "another fraction, such as 0.25"
        )
    return small


class ReplacedHead(nn.Module):
    """Logit that a token was replaced: dense, activation, projection (Eq. 2)."""

    def __init__(self, embed_dim: int, activation_fn: str) -> None:
        super().__init__()
        self.dense = nn.Linear(embed_dim, embed_dim)
        self.activation = get_activation_fn(activation_fn)
        self.out_proj = nn.Linear(embed_dim, 1)

    def forward(self, features: Tensor) -> Tensor:
        """Logits (B, T) of features (B, T, C)."""
        return self.out_proj(self.activation(self.dense(features))).squeeze(-1)


def sample_tokens(logits: Tensor, repeatable: bool) -> Tensor:
    """Draw one token from each row of softmax(*logits*), (N, V): (N,), no gradient (section 2).

    If *repeatable*, as in validation, every call draws the same tokens.
    """
    source = None
    if repeatable:
        source = torch.Generator(device=logits.device)
        source.manual_seed(0)
    logits = logits.detach().float()
    # of exponential variables with rates p_i, the i-th is the smallest with probability p_i
    return (logits - torch.empty_like(logits).exponential_(generator=source).log()).argmax(dim=-1)


@ELECTRA.register
class ElectraModel(MaskedLMModel):
    """A discriminator, with a generator that replaces tokens of the discriminator's input.

    The encoder of the model is the discriminator.  Only the generator has a head for tokens.
    """

    family = ELECTRA

    def __init__(self, args: Options, encoder: MaskedLMEncoder) -> None:
        shared, encoder.lm_head = encoder.sentence_encoder.embed_tokens, None
        generator = MaskedLMEncoder(generator_settings(args), encoder.dictionary, shared)
        super().__init__(args, encoder)
        self.generator = generator
        self.replaced_head = ReplacedHead(args.encoder_embed_dim, args.activation_fn)
        for part in (self.generator, self.replaced_head):
            initialise(part, args)

    def predict(
        self,
        src_tokens: Tensor,
        masked_tokens: Optional[Tensor] = None,
        heads: Optional[Mapping[str, Any]] = None,
        **inputs: Any,
    ) -> Tuple[Tensor, Any]:
        """Logits of the generator, and of the discriminator for the text with generated tokens.

        Args:
            src_tokens: (B, T), starting with [CLS].
            masked_tokens: (B, T), True at tokens that the generator replaces; None for the
                generator's logits alone.
            heads: unused, since no task adds heads to these models.
            inputs: see :meth:`.MaskedLMEncoder.forward`; generator and discriminator get the same
                ``original``, by default *src_tokens* (before tokens are replaced).

        Returns:
            logits of the generator for the N *masked_tokens*, (N, V), and ``{"tokens": input of
            the discriminator, (B, T), "replaced": its logits, (B, T)}``; without *masked_tokens*
            logits (B, T, V) of the generator.
        """
        inputs.setdefault("original", src_tokens)
        logits, extra = self.generator(src_tokens, masked_tokens=masked_tokens, **inputs)
        if masked_tokens is None:
            return logits, extra
        drawn = sample_tokens(logits, repeatable=not self.training)
        tokens = src_tokens.masked_scatter(masked_tokens, drawn)
        features, _ = self.encoder(tokens, True, **inputs)
        return logits, {"tokens": tokens, "replaced": self.replaced_head(features)}


@dataclass
class ReplacedTokenDetectionConfig(FairseqDataclass):
    """The weight of the discriminator."""

    discriminator_weight: float = field(
        default=50.0,
        metadata={"help": "weight of the discriminator's loss, per token", "at_least": 0},
    )


@register_criterion(CRITERION, dataclass=ReplacedTokenDetectionConfig)
class ReplacedTokenDetectionCriterion(SummingCriterion):
    """Generator loss (masked LM) plus lambda times discriminator loss (ELECTRA section 2).

    The generator's loss is a mean over masked tokens, the discriminator's a mean over all tokens.
    Tokens that the generator predicts correctly count as original.  The log has both losses in
    bits, and in percent the ``accuracy`` of the discriminator on all tokens and its ``recall`` of
    replaced tokens.

    Raises:
        UsageError: the weight is negative or not finite.
    """

    def __init__(self, cfg: ReplacedTokenDetectionConfig, task: FairseqTask) -> None:
        super().__init__(task)
        check_settings(cfg, dataclasses.fields(ReplacedTokenDetectionConfig))
        self.weight = cfg.discriminator_weight

    def forward(
        self, model: BaseFairseqModel, sample: Dict[str, Any], reduce: bool = True
    ) -> Tuple[Tensor, Tensor, Dict[str, Any]]:
        """The loss summed over masked tokens, their number, and the logging output.

        ``target`` (B, T) in *sample* is padding except at masked tokens.

        Raises:
            UsageError: the model has no discriminator.
        """
        target, inputs = sample["target"], sample["net_input"]["src_tokens"]
        masked = target.ne(self.padding_idx)
        logits, extra = model(**sample["net_input"], masked_tokens=masked)
        if "replaced" not in (extra or {}):
            raise UsageError(
                f"--criterion {CRITERION}: needs a model with a generator; give for example --arch "
                "roformer_electra_base"
            )
        generator = F.cross_entropy(logits.float(), target[masked], reduction="sum")
        replaced = extra["tokens"].ne(torch.where(masked, target, inputs))
        text, scores = inputs.ne(self.padding_idx), extra["replaced"].float()
        entropy = F.binary_cross_entropy_with_logits(scores, replaced.float(), reduction="none")
        discriminator = (entropy * text).sum()
        size, tokens = masked.sum(), text.sum()
        loss = generator + self.weight * discriminator * size / tokens
        decided = scores.gt(0)
        log = {
            "loss": loss.detach(),
            "generator_loss": generator.detach(),
            "discriminator_loss": discriminator.detach(),
            "right": (decided.eq(replaced) & text).sum(),
            "replaced": replaced.sum(),
            "found": (decided & replaced).sum(),
            "ntokens": sample["ntokens"],
            "nsentences": sample["nsentences"],
            "text": tokens,
            "sample_size": size,
        }
        return loss, size, log

    @staticmethod
    def reduce_metrics(logging_outputs: List[Dict[str, Any]]) -> None:
        """Log losses and accuracies of one or more batches."""
        sums = Sums(logging_outputs)
        size, text = max(sums["sample_size"], 1), max(sums["text"], 1)
        sums.log_bits("loss", size)
        sums.log_bits("generator_loss", size)
        sums.log_bits("discriminator_loss", text, digits=4)
        sums.log_percentage("accuracy", "right", text)
        sums.log_percentage("recall", "found", max(sums["replaced"], 1))
