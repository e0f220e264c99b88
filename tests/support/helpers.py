"""Tiny models, built the way the command line builds them."""

import contextlib
import copy
import functools
import re
from argparse import Namespace

import pytest
import torch
from fairseq import models, options
from fairseq.data import Dictionary
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from support.commands import shape
from support.lists import rows_of
from support.parts import attended_alone

from fairseq_posenc.attention import ATTENTIONS
from fairseq_posenc.attention.linear.layer import LinearAttention
from fairseq_posenc.basics.versions import TORCH_VERSION
from fairseq_posenc.encodings import ENCODINGS, all_encodings
from fairseq_posenc.layers.feed_forward import FEED_FORWARDS
from fairseq_posenc.layers.norms import NORMS

PAD = 1
VOCABULARY = Dictionary()
for _i in range(60):
    VOCABULARY.add_symbol(f"w{_i}")

TINY = [*shape(2, 32, 48, 4), "--dropout", "0"]

# every registered encoding, and compositions of encodings that enter at different points
EVERY_ENCODING = sorted(ENCODINGS) + ["learned+rotary", "sinusoidal+rotary", "tupe+t5"]


def causal_only(name):
    """True for an encoding, or LAYER:ENCODING, that only decoders can have."""
    return any(e.causal_only for e in all_encodings(name.rpartition(":")[2]))


#: encodings that encoders can have
ENCODER_ENCODINGS = [name for name in EVERY_ENCODING if not causal_only(name)]


#: suffixes of the settings that tests of the commands set themselves
SIZES = ("embed_dim", "heads", "layers", "dropout")


def kinds(presets):
    """The first preset of each kind; presets of a kind differ only in sizes and dropout.

    Tests of the commands set sizes and dropout, so they need only one preset of a kind.
    """
    first = {}
    for name, preset in presets.items():
        rest = {key: value for key, value in preset.items() if not key.endswith(SIZES)}
        first.setdefault(str(sorted(rest.items())), name)
    return list(first.values())


def own_criterion(family):
    """The --criterion flag that models of a family need, if they need one."""
    return ["--criterion", family.criterion] if family is not None and family.criterion else []


def encoding_of_sides(encoding):
    """Flags for a translation model's encoding; an encoder that cannot have it gets rotary."""
    other = ["--encoder-position-encoding", "rotary"] if causal_only(encoding) else []
    return ["--position-encoding", encoding, *other]


def copies(build):
    """Decorate a function that builds a model: equal calls return copies of the first model.

    Calls are equal if their arguments and the state of the random number generator are equal.
    Building takes five times as long as copying.  Copies share their settings.
    """

    @functools.lru_cache(maxsize=128)
    def built(state, *arguments, **named):
        return build(*arguments, **named), torch.get_rng_state()

    @functools.wraps(build)
    def copied(*arguments, **named):
        state = torch.get_rng_state().numpy().tobytes()
        model, after = built(state, *arguments, **named)
        torch.set_rng_state(after)
        settings = ("cfg", "args", "completed_settings")
        shared = [getattr(part, name, None) for part in model.modules() for name in settings]
        return copy.deepcopy(model, {id(one): one for one in shared})

    return copied


class TranslationTask:
    """The part of a translation task that building a model needs."""

    source_dictionary = target_dictionary = VOCABULARY
    cfg = Namespace(_name="translation")


def task_of(name, **settings):
    """The part of any task that building a model needs; *settings* are further ones of the task."""
    settings = Namespace(**{"_name": name, "tokens_per_sample": 64, **settings})
    dictionaries = dict.fromkeys(("source_dictionary", "target_dictionary"), VOCABULARY)
    return Namespace(**dictionaries, cfg=settings, args=settings)


@functools.lru_cache(maxsize=None)
def _parse(arch, flags, task):
    arguments = ["data", "--task", task, "--arch", arch, *flags]
    args = options.parse_args_and_arch(options.get_training_parser(), arguments)
    return convert_namespace_to_omegaconf(args)


def parse(arch, *flags, task="translation"):
    """The configuration that fairseq-train would use."""
    return copy.deepcopy(_parse(arch, flags, task))


def model_settings(arch, *flags, task="translation"):
    """The model's settings in the configuration of :func:`parse`."""
    return copy.deepcopy(_parse(arch, flags, task).model)


def build(arch, *flags):
    """A model of *arch* for a toy translation task."""
    return models.build_model(model_settings(arch, *flags), TranslationTask())


#: the registered attentions with feature maps, and those whose features can be rotated
LINEAR = [name for name, entry in ATTENTIONS.items() if issubclass(entry.thing, LinearAttention)]
_POSITIVE = Namespace(favor_kernel="softmax", favor_epsilon=None)
ROTATING = [name for name in LINEAR if ATTENTIONS[name].thing.map_class.is_positive(_POSITIVE)]
# maps the name of a layer to its flags; "" is the usual layer, and the others have a registered
# attention, norm or feed-forward network, or a row in a layers.txt
LAYERS = {
    "": [],
    **{name: ["--attention", name] for name in ATTENTIONS if name != "softmax"},
    **{f"norm_{name}": ["--norm", name] for name in NORMS},
    **{f"ffn_{name}": ["--feed-forward", name] for name in FEED_FORWARDS},
}
#: the layers with the encodings to test them with, as LAYER:ENCODING
OTHER_LAYERS = [f"{name}:{'rotary' if name in ROTATING else 'none'}" for name in LINEAR]
OTHER_LAYERS += [f"{name}:sinusoidal" for name in LINEAR]
OTHER_LAYERS += [f"norm_{name}:t5" for name in NORMS if name != "layer"]
OTHER_LAYERS += [f"ffn_{name}:rotary" for name in FEED_FORWARDS if name != "mlp"]
_MODEL_BLOCKS = {}
for _name, _flags, _encodings, *_blocks in rows_of("layers.txt"):
    LAYERS[_name], _MODEL_BLOCKS[_name] = _flags.split(), " ".join(_blocks).split()
    OTHER_LAYERS += [f"{_name}:{encoding}" for encoding in _encodings.split()]


@copies
def tiny(name, *flags):
    """A two-layer translation model in evaluation mode; *name* is ENCODING or LAYER:ENCODING."""
    layer, _, encoding = name.rpartition(":")
    flags = (*encoding_of_sides(encoding), *TINY, *LAYERS[layer], *flags)
    return build("posenc_transformer", *flags).eval()


def tiny_in_blocks(name):
    """A model of :func:`tiny` with blocks of a multiple of 8 tokens, as real models have."""
    return tiny(name, *_MODEL_BLOCKS.get(name.rpartition(":")[0], ()))


def parameters_of(model):
    """Parameters by name, without the duplicates in encoder layers of fairseq 0.12.2."""
    copies = re.compile(r"layers\.\d+\.(in_proj|out_proj|fc1|fc2)_(weight|bias)$")
    return {k: p for k, p in model.named_parameters() if not copies.search(k)}


def without_values():
    """A context in which models are built without memory for their parameters, if PyTorch can."""
    return torch.device("meta") if TORCH_VERSION >= (2, 0) else contextlib.nullcontext()


def skip_without_cpu_kernels(dtype):
    """Skip the test if PyTorch cannot compute with *dtype* on the CPU (float16: before 2.1)."""
    try:
        torch.nn.functional.layer_norm(
            torch.ones(2, 2, dtype=dtype) @ torch.ones(2, 2).to(dtype), (2,)
        )
    except RuntimeError as error:
        pytest.skip(f"this PyTorch has no {dtype} on the CPU: {error}")


def sentences(batch, length, seed=0):
    """Random tokens (B, T) without padding."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(4, len(VOCABULARY), (batch, length), generator=generator)


def padded_batch(source_length=7, target_length=9):
    """Random tokens of 3 sentence pairs, padded as in fairseq: sources left, targets right."""
    source, target = sentences(3, source_length), sentences(3, target_length, seed=1)
    source[0, :2], target[1, -3:] = PAD, PAD
    return source, target


def decode_in_steps(model, source, target, steps):
    """Logits of *target*, decoded with a cache; *steps* lists the number of tokens per call."""
    encoder_out, state, outputs, end = model.encoder(source), {}, [], 0
    for step in steps:
        end += step
        out, _ = model.decoder(target[:, :end], encoder_out=encoder_out, incremental_state=state)
        outputs.append(out)
    return torch.cat(outputs, dim=1)


def through_a_cache(layer, x, steps, padding=None):
    """Run causal attention on x with a cache; *steps* lists the number of tokens per call.

    Args: padding (B, T) is True at padding.

    Returns: the outputs (B, T, C), and the cache.
    """
    state, outputs, seen = {}, [], 0
    for step in steps:
        assert layer.cached_length(state) == seen
        new, seen = x[:, seen : seen + step], seen + step
        mask = None if padding is None else padding[:, :seen]
        outputs.append(attended_alone(layer, new, True, mask, seen, incremental_state=state))
    return torch.cat(outputs, 1), state


@torch.no_grad()
def last_token(model, source, target):
    """A function that decodes the last token of *target*; earlier tokens are in its cache."""
    model.eval().make_generation_fast_(need_attn=False)
    encoder_out, state = model.encoder(source, None), {}
    for length in range(1, target.size(1)):
        model.decoder(target[:, :length], encoder_out=encoder_out, incremental_state=state)
    decode = functools.partial(model.decoder, encoder_out=encoder_out, incremental_state=state)
    return torch.no_grad()(lambda: decode(target))
