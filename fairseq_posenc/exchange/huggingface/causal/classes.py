"""The classes of transformers for language models: which models they hold, and their config.json.

rotary, RMS norms, gated feed-forward, grouped queries     LlamaForCausalLM
rotary, layer norms, biases                                GPTNeoXForCausalLM
ALiBi, layer norms, biases, norm of the embeddings         BloomForCausalLM
learned positions, layer norms, biases                     GPT2LMHeadModel
"""

from typing import Any, Collection, Dict, Mapping, Tuple

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.exchange.config import Config
from fairseq_posenc.exchange.huggingface import folder as hf
from fairseq_posenc.exchange.huggingface.causal import names
from fairseq_posenc.exchange.huggingface.causal.rope_entries import rope_entries, rope_settings
from fairseq_posenc.exchange.huggingface.names import Names
from fairseq_posenc.models.kinds import Settings

_PRE_NORM = {"decoder_normalize_before": (True,)}
#: The gated forms of the feed-forward that have an activation of their own, with its name there.
GATED = {"swiglu": "silu", "geglu": "gelu"}


class CausalClass:
    """A class of transformers for language models, whose layers have their norms first."""

    #: the name of the class
    architecture: str
    #: the name of the model in config.json
    model_type: str
    #: where its parameters are
    names: Names
    #: settings, beside sizes, of which the class can express every value
    read: Collection[str] = ("activation_fn",)
    #: other settings, with the values that the class can express; all others need their defaults
    values: Mapping[str, Collection[Any]]
    #: the entries of config.json for sizes and ε, by our settings
    sizes: Mapping[str, str] = {
        "decoder_layers": "num_hidden_layers",
        "decoder_embed_dim": "hidden_size",
        "decoder_attention_heads": "num_attention_heads",
        "decoder_ffn_embed_dim": "intermediate_size",
        "max_target_positions": "max_position_embeddings",
    }
    epsilon: Tuple[str, float] = ("layer_norm_eps", 1e-5)
    #: other names of entries, which the class reads as well
    aliases: Mapping[str, str] = {}
    #: True if the output projection is the embedding wherever config.json says nothing of it
    tied = False

    def entries(self, settings: Settings, dim: int, path: str) -> Dict[str, Any]:
        """Its entries of config.json.

        Args:
            settings: complete settings, which it can hold.
            dim: rotated channels of a head.
            path: the checkpoint, for messages.

        Raises:
            UsageError: it cannot hold a combination of settings.
        """
        return {
            **{theirs: settings[ours] for ours, theirs in self.sizes.items()},
            self.epsilon[0]: settings["layer_norm_eps"],
        }

    def settings(self, config: Config) -> Settings:
        """The flags of a model, given its config.json.

        Raises:
            UsageError: an entry is missing, or has a value that cannot be imported.
        """
        found: Settings = config.sizes(self.sizes)
        return {
            **found,
            "decoder_normalize_before": True,
            "no_scale_embedding": True,
            "decoder_input_dim": found["decoder_embed_dim"],
            "decoder_output_dim": found["decoder_embed_dim"],
            "tokens_per_sample": found["max_target_positions"],
            "layer_norm_eps": config.factor(*self.epsilon),
            "dropout": 0.0,
        }


class Llama(CausalClass):
    """``LlamaForCausalLM``."""

    architecture, model_type, names = "LlamaForCausalLM", "llama", names.LLAMA
    read = ("no_bias", "kv_heads", "activation_fn")
    values = {
        **_PRE_NORM,
        "position_encoding": ("rotary",),
        "norm": ("rms",),
        "feed_forward": (*GATED, "glu"),
    }
    epsilon = ("rms_norm_eps", 1e-6)

    def entries(self, settings: Settings, dim: int, path: str) -> Dict[str, Any]:
        """See :class:`CausalClass`."""
        form, heads = settings["feed_forward"], settings["decoder_attention_heads"]
        bias = not settings["no_bias"]
        return {
            **super().entries(settings, dim, path),
            "num_key_value_heads": settings["kv_heads"] or heads,
            "head_dim": settings["decoder_embed_dim"] // heads,
            "hidden_act": GATED.get(form) or hf.activation_for(settings["activation_fn"], path),
            "attention_bias": bias,
            "mlp_bias": bias,
            **rope_entries(settings, dim, path),
        }

    def settings(self, config: Config) -> Settings:
        """See :class:`CausalClass`."""
        found = super().settings(config)
        heads = found["decoder_attention_heads"]
        shared = config.size("num_key_value_heads", heads)
        biases = [config.flag(name, False) for name in ("attention_bias", "mlp_bias")]
        activation = config.name("hidden_act", "silu")
        gated = {theirs: ours for ours, theirs in GATED.items()}.get(activation)
        form = {"feed_forward": gated}
        if gated is None:
            form = {"feed_forward": "glu", "activation_fn": hf.activation_of(config)}
        rotary = rope_settings(config)
        if rotary["rotary_fraction"] != 1:
            raise UsageError(
                f"{config.path}: partial_rotary_factor is {rotary['rotary_fraction']}; "
                f"{self.architecture} rotates all channels of a head"
            )
        return {
            **found,
            **form,
            **rotary,
            "norm": "rms",
            "no_bias": not any(biases),
            "kv_heads": None if shared == heads else shared,
            "attention_dropout": config.fraction("attention_dropout", 0.0),
        }


class GPTNeoX(CausalClass):
    """``GPTNeoXForCausalLM``."""

    architecture, model_type, names = "GPTNeoXForCausalLM", "gpt_neox", names.GPT_NEOX
    read = ("rotary_fraction", "activation_fn")
    values = {**_PRE_NORM, "position_encoding": ("rotary",)}

    def entries(self, settings: Settings, dim: int, path: str) -> Dict[str, Any]:
        """See :class:`CausalClass`."""
        rope = rope_entries(settings, dim, path)
        return {
            **super().entries(settings, dim, path),
            "hidden_act": hf.activation_for(settings["activation_fn"], path),
            "use_parallel_residual": False,
            "attention_bias": True,
            **rope,
            "rotary_emb_base": rope["rope_theta"],
            "rotary_pct": settings["rotary_fraction"],
        }

    def settings(self, config: Config) -> Settings:
        """See :class:`CausalClass`."""
        if config.flag("use_parallel_residual", True):
            raise UsageError(
                f"{config.path}: use_parallel_residual is true: attention and feed-forward of a "
                "layer read the same input, which this plug-in's layers do not"
            )
        config.one_of("attention_bias", True, (True,))
        return {
            **super().settings(config),
            "activation_fn": hf.activation_of(config),
            "attention_dropout": config.fraction("attention_dropout", 0.0),
            "dropout": config.fraction("hidden_dropout", 0.0),
            **rope_settings(config, "rotary_emb_base", "rotary_pct", 0.25),
        }


class Bloom(CausalClass):
    """``BloomForCausalLM``."""

    tied = True
    architecture, model_type, names = "BloomForCausalLM", "bloom", names.BLOOM
    read = ()
    values = {
        **_PRE_NORM,
        "position_encoding": ("alibi",),
        "activation_fn": ("gelu_accurate", "gelu_fast"),
        "layernorm_embedding": (True,),
    }
    sizes = {
        "decoder_layers": "n_layer",
        "decoder_embed_dim": "hidden_size",
        "decoder_attention_heads": "n_head",
        "max_target_positions": "seq_length",  # ALiBi itself has no limit
    }
    aliases = {
        "num_hidden_layers": "n_layer",
        "num_attention_heads": "n_head",
        "n_embed": "hidden_size",
    }
    epsilon = ("layer_norm_epsilon", 1e-5)

    def entries(self, settings: Settings, dim: int, path: str) -> Dict[str, Any]:
        """See :class:`CausalClass`."""
        width, channels = settings["decoder_ffn_embed_dim"], settings["decoder_embed_dim"]
        if width != 4 * channels:
            raise UsageError(
                f"{path}: --decoder-ffn-embed-dim {width}: {self.architecture} has four times "
                f"--decoder-embed-dim {channels}"
            )
        return super().entries(settings, dim, path)

    def settings(self, config: Config) -> Settings:
        """See :class:`CausalClass`."""
        config.one_of("apply_residual_connection_post_layernorm", False, (False,))
        config = config._replace(entries={"seq_length": 2048, **config.entries})
        found = super().settings(config)
        return {
            **found,
            "decoder_ffn_embed_dim": 4 * found["decoder_embed_dim"],
            "position_encoding": "alibi",
            "activation_fn": "gelu_accurate",
            "layernorm_embedding": True,
            "attention_dropout": config.fraction("attention_dropout", 0.0),
            "dropout": config.fraction("hidden_dropout", 0.0),
        }


class GPT2(CausalClass):
    """``GPT2LMHeadModel``."""

    tied = True
    architecture, model_type, names = "GPT2LMHeadModel", "gpt2", names.GPT2
    values = {**_PRE_NORM, "position_encoding": ("learned",)}
    sizes = {
        "decoder_layers": "n_layer",
        "decoder_embed_dim": "n_embd",
        "decoder_attention_heads": "n_head",
        "decoder_ffn_embed_dim": "n_inner",
        "max_target_positions": "n_positions",
    }
    aliases = {
        "num_hidden_layers": "n_layer",
        "hidden_size": "n_embd",
        "num_attention_heads": "n_head",
        "max_position_embeddings": "n_positions",
    }
    epsilon = ("layer_norm_epsilon", 1e-5)

    def entries(self, settings: Settings, dim: int, path: str) -> Dict[str, Any]:
        """See :class:`CausalClass`."""
        activation = hf.activation_for(settings["activation_fn"], path)
        return {**super().entries(settings, dim, path), "activation_function": activation}

    def settings(self, config: Config) -> Settings:
        """See :class:`CausalClass`."""
        config.one_of("scale_attn_weights", True, (True,))
        config.one_of("scale_attn_by_inverse_layer_idx", False, (False,))
        given = {name: value for name, value in config.entries.items() if value is not None}
        config = config._replace(entries={"n_inner": 4 * config.size("n_embd"), **given})
        return {
            **super().settings(config),
            "position_encoding": "learned",
            "activation_fn": hf.activation_of(config, "activation_function", "gelu_new"),
            "attention_dropout": config.fraction("attn_pdrop", 0.1),
            "dropout": config.fraction("resid_pdrop", 0.1),
        }


#: The classes by the names of their formats.
CLASSES: Dict[str, CausalClass] = {
    "hf-llama": Llama(),
    "hf-gpt-neox": GPTNeoX(),
    "hf-bloom": Bloom(),
    "hf-gpt2": GPT2(),
}
